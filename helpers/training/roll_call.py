"""Asks every process of a run who it is, what its loaders read, and what its evaluation counts.

The loaders are the notebook's own and read the run's own images, each once or as often as they
please. Told apart they are by their *targets*: for as long as the check lasts the tables say, in
place of what is on an image, its number. Pixels would be a worse sign: a crop is at random, a
mirror image is another one, and two images may be alike; targets go unchanged through every loader,
in whatever containers its framework keeps them.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice, repeat
from typing import Any

import numpy as np
import pandas as pd

from helpers.errors import LoaderError
from helpers.fairness import reference, reference_checks, rehearsal, world_checks
from helpers.fairness.certificate import Certificate
from helpers.fairness.world_checks import Answer
from helpers.frameworks import place
from helpers.recipe import ScaledRecipe
from helpers.training.image_data import Data
from helpers.training.image_readers import COLUMNS
from helpers.training.in_world import Work, predict
from helpers.training.world import World

EPOCHS = 2
MOST = 2000
"""So many images at most are read in an epoch of it, or three batches where those are more."""
LOOKED_AT = 32
"""Of so many of the evaluated images the logits are known."""
OUTPUTS = tuple(f"output {number}" for number in range(14))
"""The shallow net's."""


def certify(
    certificate: Certificate,
    everywhere: Callable[..., list[Answer]],
    images: Data,
    recipe: ScaledRecipe,
    *,
    processes: int,
    hosts: int,
) -> Certificate:
    """Add the rows of the world.

    Args:
        certificate: what was found so far.
        everywhere: calls ``function(world, work, *args)`` in each process.
        images: the run's.
        recipe: scaled to all devices.
        processes: how many there are to be.
        hosts: on how many machines.
    """
    began = time.perf_counter()
    train, valid = tables(images, recipe)
    answers = everywhere(answer, train, valid)
    used = recipe.steps(len(train)) * recipe.global_batch
    places = np.unique(np.linspace(0, len(valid) - 1, LOOKED_AT).astype(int))
    checks = [
        world_checks.joined(answers, processes, recipe.devices, hosts),
        world_checks.each_once(answers, len(train), used),
        world_checks.reshuffled(answers),
        *world_checks.evaluated(
            answers,
            places,
            expected_logits(images, valid.iloc[places], recipe.recipe.crop),
            targets_of(valid, recipe.recipe.task),
            rehearsal.LIMITS[recipe.recipe.precision].values,
        ),
    ]
    seconds = certificate.seconds + time.perf_counter() - began
    return Certificate((*certificate.checks, *checks), seconds)


def answer(world: World, work: Work, train: pd.DataFrame, valid: pd.DataFrame) -> Answer:
    """What one process says.

    Args:
        train: the images of an epoch, of which each target is the number of its row.
        valid: those to evaluate.
    """
    lesson, framework = work.lesson, work.framework
    with standing_in(work.images, train, work.recipe.recipe.task):
        batches = iter(lesson.make_train_loader(world, 0, work.workers))
        steps = work.recipe.steps(len(train))
        epochs = tuple(numbers(islice(batches, steps)) for _ in range(EPOCHS))
        if hasattr(batches, "close"):
            batches.close()
        del batches  # with which its workers end
        with lesson.scope():
            network = framework.shallow(reference.shallow_arrays(), world.devices)
        # No step is taken, but some ask for the first one's rate when they start.
        replica = lesson.start(world, network, rule=rehearsal.SGD, rates=repeat(0.1))
        lesson.ready(replica, [])
        loader = lesson.make_evaluation_loader(world, valid, work.workers)
        logits, loss = predict(lesson, replica, iter(loader), len(valid))
        last = framework.slowest(float(world.rank), world.devices)
        lesson.stop(replica)
    devices, here = len(world.devices), place.here()
    # Of ranks the name that their launcher knows: Slurm may have several nodes on a machine.
    host = socket.gethostname() if here is None else here.hosts[here.rank]
    return Answer(world.rank, devices, host, os.getpid(), last, epochs, logits, loss)


@contextmanager
def standing_in(images: Data, train: pd.DataFrame, task: str) -> Iterator[None]:
    """Meanwhile these images are trained on, with as many outputs as the shallow net has.

    The notebook's loaders know the run's images by their own name for them, so that nothing but
    these themselves can be exchanged.
    """
    before = {name: getattr(images, name) for name in ("train", "classes", "task")}
    vars(images).update(train=train, classes=OUTPUTS, task=task)
    try:
        yield
    finally:
        vars(images).update(before)


def tables(images: Data, recipe: ScaledRecipe) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Those to train on, whose targets are their numbers, and those to evaluate.

    Both fill no whole number of batches, if they can help it: what is left over is what is
    mistaken.
    """
    most = max(MOST, 3 * recipe.global_batch)
    train = _uneven(images.train[:most], recipe.global_batch, recipe.global_batch)
    valid = _uneven(images.valid[:most], recipe.global_batch, 1)
    number = np.arange(len(train))
    if recipe.recipe.task == "classes":
        of_valid = {"class": np.arange(len(valid)) % len(OUTPUTS)}
        return _labelled(train, {"class": number}), _labelled(valid, of_valid)
    # Each image has findings of its own, by the digits of its number.
    marks = {name: np.arange(len(valid)) >> place & 1 for place, name in enumerate(OUTPUTS)}
    return _labelled(train, dict.fromkeys(OUTPUTS, number)), _labelled(valid, marks)


def numbers(batches: Iterator[Any]) -> np.ndarray:
    """Of the images in these batches, int64 (images,).

    Raises:
        LoaderError: there are no batches.
    """
    found = [targets for batch in batches for targets in parts_of(batch) if targets.ndim < 4]
    if not found:
        raise LoaderError(
            "data-coverage check: the training loader ended before the second epoch; let "
            "make_train_loader give batches without end"
        )
    return np.concatenate([targets.reshape(len(targets), -1)[:, 0] for targets in found]).astype(
        np.int64
    )


def parts_of(batch: Any) -> Iterator[np.ndarray]:
    """The arrays of a batch, pixels and targets, in the host's memory.

    A framework's loader gives them as such, or a pair for each device, or (TensorFlow's) the
    ``values`` of all replicas.
    """
    inner = getattr(batch, "values", batch)
    if isinstance(inner, tuple | list):
        for part in inner:
            yield from parts_of(part)
    elif hasattr(batch, "asnumpy"):
        yield batch.asnumpy()
    elif hasattr(batch, "addressable_shards"):  # of JAX's arrays a process has some
        for shard in batch.addressable_shards:
            yield np.asarray(shard.data)
    else:
        yield np.asarray(batch.cpu() if hasattr(batch, "is_cuda") else batch)


def expected_logits(images: Data, part: pd.DataFrame, crop: int) -> np.ndarray:
    """What the shallow net makes of these images' centre crops, float64 (images, 14)."""
    start = reference.shallow_arrays()
    crops = (reference_checks.centre_crop(images.read(row), crop) for row in part["row"])
    return np.concatenate([reference.shallow_logits(start, pixels[None]) for pixels in crops])


def targets_of(part: pd.DataFrame, task: str) -> np.ndarray:
    """As ``Data.targets``, of a table from :func:`tables`."""
    return np.array(part["class"] if task == "classes" else part[list(OUTPUTS)])


def _uneven(part: pd.DataFrame, batch: int, least: int) -> pd.DataFrame:
    """One image less where they fill whole batches; never fewer than ``least``."""
    return part[:-1] if len(part) % batch == 0 and len(part) > least else part


def _labelled(part: pd.DataFrame, labels: dict[str, np.ndarray]) -> pd.DataFrame:
    return part[list(COLUMNS)].reset_index(drop=True).assign(**labels)
