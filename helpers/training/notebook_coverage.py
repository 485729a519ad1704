"""The data-coverage check of a notebook's own loader and evaluation, in every process."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from helpers.errors import LoaderError
from helpers.fairness import process_checks, reference, reference_checks, training_loop
from helpers.fairness.check_results import Check
from helpers.fairness.process_checks import Answer
from helpers.recipe.settings import MULTICLASS
from helpers.training.notebook_recipe import Split
from helpers.training.run_state import RunState
from helpers.training.training_notes import FILLED, joined, parts_of

OUTPUTS = 14
"""Those of the reference's networks."""
MOST, MOST_EVEN = 2000, 100_000
"""Images that an epoch of the data-coverage check reads, or three batches where those are more; and
black images, where all fill whole batches."""
LOOKED_AT = 32
"""Evaluated images whose logits are compared."""
PIXELS = "evaluation pixels"


class Black(NamedTuple):
    """A reader of black images of one shape."""

    shape: tuple[int, ...]

    def read(self, row: int) -> np.ndarray:
        return np.zeros(self.shape, np.uint8)


class Functions(NamedTuple):
    """The notebook's functions, as :meth:`helpers.run.Run.check` documents them."""

    build_model: Callable[[], Any]
    make_replica: Callable[[Any], Any]
    train_steps: Callable[[Any, Any, int], float]
    predict: Callable[[Any, Any, int], np.ndarray]
    make_loader: Callable[[Split, bool], Any]


def shallow(run: RunState, arrays: Mapping[str, np.ndarray], beside: Any) -> Any:
    """A shallow network with these weights, placed as the notebook's network ``beside``."""
    framework = run.framework
    place = framework.beside(beside) if hasattr(framework, "beside") else nullcontext()
    with place:
        return framework.shallow(arrays, run.own_devices)


def check(run: RunState, of: Functions, network: Any) -> list[Check]:
    """Who takes part, which images each process reads, and what an evaluation gives."""
    r, recipe = run.recipe, run.setup.recipe
    train, even, valid = _splits(run)
    processes = run.loop.processes
    with r.varied(outputs=OUTPUTS):
        loader = of.make_loader(train, True)
        epochs = tuple(_numbers(run, loader, epoch) for epoch in (0, 1))
        whole = _numbers(run, of.make_loader(even, True), 0)
        logits, numbers, seen = run.apart(partial(_evaluated, run, of, valid, network))
    last = run.framework.slowest(float(run.rank), run.own_devices)
    own = run.setup.replicas // processes
    host = socket.gethostname()  # Slurm may call one by two names
    answer = Answer(run.rank, own, host, os.getpid(), last, epochs, whole, logits)
    answers = run.gather(answer)
    used = len(train) // recipe.global_batch_size * recipe.global_batch_size
    found = np.concatenate(run.gather(np.concatenate([np.zeros(0, int), *numbers])))
    times = np.bincount(found[(found >= 0) & (found < len(valid))], minlength=len(valid))
    spread = np.linspace(0, len(valid) - 1, LOOKED_AT).astype(int)
    # And some of those that the processes did not evaluate once.
    places = np.unique([*spread, *np.flatnonzero(times != 1)[:LOOKED_AT]])
    crops = [reference_checks.centre_crop(valid.read(int(place)), r.crop) for place in places]
    arrays = reference.shallow_arrays()
    expected = np.concatenate([reference.shallow_logits(arrays, crop[None]) for crop in crops])
    hosts = 1 if run.setup.simulated_nodes else run.setup.nodes
    limit = training_loop.LIMITS[r.precision].values
    return [
        _pixels(run, valid, seen[0] if seen else None, numbers),
        process_checks.joined(answers, processes, run.setup.replicas, hosts),
        process_checks.each_once(answers, len(train), used, len(even)),
        process_checks.evaluated(answers, len(valid), places, expected, limit),
    ]


def _evaluated(
    run: RunState, of: Functions, valid: Split, beside: Any
) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """A shallow network's logits, each batch's numbers, and what the network sees of the first."""
    other = of.make_replica(shallow(run, reference.shallow_arrays(), beside))
    evaluation, numbers = of.make_loader(valid, False), list[np.ndarray]()

    def noted() -> Iterator[Any]:
        for batch in evaluation:
            numbers.append(joined(parts_of(batch)[2:]))
            yield batch

    with run.framework.seen_by(other.network) as seen:
        logits = np.asarray(of.predict(other, noted(), len(valid)))
    return logits, numbers, seen[:1]


def _pixels(run: RunState, split: Split, seen: np.ndarray | None, numbers: Sequence[Any]) -> Check:
    """What the network sees of the first batch of an evaluation, against the definition."""
    if seen is None or not numbers:
        return Check(PIXELS, None, None, "this process evaluates no image")
    recipe = run.setup.recipe.recipe
    limit = training_loop.LIMITS[recipe.precision].values  # a network may see them in 16 bits
    worst = 0.0
    for pixels, number in zip(seen, numbers[0].tolist(), strict=False):
        if number == FILLED:
            continue
        expected = reference_checks.expected_pixels(split.read(number), recipe)
        if pixels.shape != expected.shape:
            return Check(PIXELS, float("inf"), limit, f"shape {pixels.shape}")
        # np.max, because Python's max() loses a NaN
        worst = float(np.max([worst, np.abs(pixels - expected).max()]))
    return Check(PIXELS, worst, limit)


def _splits(run: RunState) -> tuple[Split, Split, Split]:
    """Some images to train on, black ones that fill whole batches, and some to evaluate.

    The first and the last fill no whole number of batches, if they can help it, and devices have
    unequal numbers of the last: what is left over is what is mistaken.
    """
    r, batch, world = run.recipe, run.setup.recipe.global_batch_size, run.setup.replicas
    most = max(MOST, 3 * batch)
    train = _few(run.train_split, most, batch, batch)
    valid = _few(run.valid_split, most, 1, batch, world)
    count = max(min(len(run.train_split), MOST_EVEN) // batch, 1) * batch
    black, targets = Black(run.train_split.read(0).shape), run.train_split.targets
    even = Split(range(count), np.resize(targets, (count, *targets.shape[1:])), black.read)
    if r.task == MULTICLASS:
        marks: Any = np.arange(len(valid)) % OUTPUTS
    else:  # each image has findings of its own, by the digits of its number
        digits = [np.arange(len(valid)) >> place & 1 for place in range(OUTPUTS)]
        marks = np.stack(digits, axis=1).astype(np.float32)
    return train, even, replace(valid, targets=marks)


def _few(split: Split, most: int, least: int, *by: int) -> Split:
    """The first images, of a number that is no multiple of these, if ``least`` allows."""
    count = min(len(split), most)
    while count > least and any(count % each == 0 for each in by if each > 1):
        count -= 1
    return Split(split.rows[:count], split.targets[:count], split.reader)


def _numbers(run: RunState, loader: Any, epoch: int) -> np.ndarray:
    """The numbers of the images that a loader gives in an epoch, int64 (images,)."""
    run.framework.set_epoch(loader, epoch)
    found = [parts_of(batch)[2] for batch in loader]
    if not found:
        raise LoaderError("the fairness check: the training loader gave no batch")
    return joined(found).astype(np.int64)
