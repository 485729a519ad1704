"""The data-coverage check: collect from every process the images that it reads and evaluates.

The loaders are the notebook's own; ``numbered_images`` identifies the images that they read.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from itertools import repeat

import numpy as np
import pandas as pd

from helpers.fairness import process_checks, reference, reference_checks, training_loop
from helpers.fairness.check_results import Check
from helpers.fairness.process_checks import Answer
from helpers.recipe import MULTICLASS, ScaledRecipe
from helpers.training import numbered_images
from helpers.training.image_data import Data
from helpers.training.train_loop import Work, predict
from helpers.training.world import World

EPOCHS = 2
MOST = 2000
"""So many images at most are read in an epoch of it, or three batches where those are more."""
MOST_EVEN = 100_000
"""So many at most in the epoch in which all fill whole batches; of them none is read."""
LOOKED_AT = 32
"""The number of evaluated images whose logits are known."""
OUTPUTS = tuple(f"output {number}" for number in range(14))
"""The shallow net's."""


def check_fairness(
    everywhere: Callable[..., list[Answer]],
    images: Data,
    recipe: ScaledRecipe,
    *,
    processes: int,
    hosts: int,
) -> list[Check]:
    """The rows of the world.

    Args:
        everywhere: calls ``function(world, work, *args)`` in each process.
    """
    train, valid = tables(images, recipe)
    even = even_table(images, recipe)
    answers = everywhere(answer, train, even, valid)
    used = recipe.steps(len(train)) * recipe.global_batch_size
    places = np.unique(np.linspace(0, len(valid) - 1, LOOKED_AT).astype(int))
    return [
        process_checks.joined(answers, processes, recipe.devices, hosts),
        process_checks.each_once(answers, len(train), used, len(even)),
        process_checks.reshuffled(answers),
        *process_checks.evaluated(
            answers,
            places,
            expected_logits(images, valid.iloc[places], recipe.recipe.crop),
            targets_of(valid, recipe.recipe.task),
            training_loop.LIMITS[recipe.recipe.precision].values,
        ),
    ]


def answer(
    world: World, work: Work, train: pd.DataFrame, even: pd.DataFrame, valid: pd.DataFrame
) -> Answer:
    """What one process says.

    Args:
        train: the images of an epoch, of which each target is the number of its row.
        even: the same, of images that fill whole batches.
        valid: those to evaluate.
    """
    functions, framework, task = work.functions, work.framework, work.recipe.recipe.task
    with numbered_images.standing_in(work.images, even, task, OUTPUTS, black=True):
        (whole,) = numbered_images.read(world, work, 0, work.recipe.steps(len(even)))
    with numbered_images.standing_in(work.images, train, task, OUTPUTS):
        steps = work.recipe.steps(len(train))
        epochs = tuple(numbered_images.read(world, work, 0, *[steps] * EPOCHS))
        with functions.scope():
            network = framework.shallow(reference.shallow_arrays(), world.devices)
        # No step is taken, but some ask for the first one's rate when they start.
        replica = functions.start(world, network, rule=training_loop.SGD, rates=repeat(0.1))
        functions.ready(replica, [])
        loader = functions.make_evaluation_loader(world, valid, work.workers)
        logits, loss = predict(functions, replica, iter(loader), len(valid))
        last = framework.slowest(float(world.rank), world.devices)
        functions.stop(replica)
    devices, host = len(world.devices), socket.gethostname()  # Slurm may call one by two names
    return Answer(world.rank, devices, host, os.getpid(), last, epochs, whole, logits, loss)


def tables(images: Data, recipe: ScaledRecipe) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Those to train on, whose targets are their numbers, and those to evaluate.

    Both fill no whole number of batches, if they can help it: what is left over is what is
    mistaken.
    """
    most = max(MOST, 3 * recipe.global_batch_size)
    train = _uneven(images.train[:most], recipe.global_batch_size, recipe.global_batch_size)
    valid = _uneven(images.valid[:most], recipe.global_batch_size, 1)
    if recipe.recipe.task == MULTICLASS:
        marks = {"class": np.arange(len(valid)) % len(OUTPUTS)}
    else:  # each image has findings of its own, by the digits of its number
        marks = {name: np.arange(len(valid)) >> place & 1 for place, name in enumerate(OUTPUTS)}
    read = numbered_images.numbered(train, recipe.recipe.task, OUTPUTS)
    return read, numbered_images.labelled(valid, marks)


def even_table(images: Data, recipe: ScaledRecipe) -> pd.DataFrame:
    """As many images as fill whole batches; their targets are their numbers."""
    most = min(len(images.train), MOST_EVEN)
    used = max(most // recipe.global_batch_size, 1) * recipe.global_batch_size
    return numbered_images.numbered(images.train[:used], recipe.recipe.task, OUTPUTS)


def expected_logits(images: Data, part: pd.DataFrame, crop: int) -> np.ndarray:
    """What the shallow net makes of these images' centre crops, float64 (images, 14)."""
    start = reference.shallow_arrays()
    crops = (reference_checks.centre_crop(images.read(row), crop) for row in part["row"])
    return np.concatenate([reference.shallow_logits(start, pixels[None]) for pixels in crops])


def targets_of(part: pd.DataFrame, task: str) -> np.ndarray:
    """As ``Data.targets``, of a table from :func:`tables`."""
    return np.array(part["class"] if task == MULTICLASS else part[list(OUTPUTS)])


def _uneven(part: pd.DataFrame, batch: int, least: int) -> pd.DataFrame:
    """One image less where they fill whole batches; never fewer than ``least``."""
    return part[:-1] if len(part) % batch == 0 and len(part) > least else part
