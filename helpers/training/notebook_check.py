"""The fairness check of a notebook's own objects, in the processes that will train.

Rows that one device can answer are computed by rank 0; of the others the worst process's counts.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from helpers.errors import LoaderError
from helpers.fairness import (
    custom_network,
    process_checks,
    reference,
    reference_checks,
    training_loop,
)
from helpers.fairness.check_results import Check
from helpers.training import launching, showing
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
_ORDER = ("not checked", "pass", "expected", "different", "fail")


class Functions(NamedTuple):
    """The notebook's functions; docs/run.md says what each returns."""

    build_model: Callable[[], Any]
    make_replica: Callable[[Any], Any]
    train_steps: Callable[[Any, Any, int], float]
    predict: Callable[[Any, Any, int], np.ndarray]
    make_loader: Callable[[Split, bool], Any]


def check(
    run: RunState,
    replica: Any,
    build_model: Callable[[], Any],
    make_replica: Callable[[Any], Any],
    train_steps: Callable[[Any, Any, int], float],
    predict: Callable[[Any, Any, int], np.ndarray],
    make_loader: Callable[[Split, bool], Any],
) -> None:
    """Check that this notebook trains what all others train; show and record the result.

    Run it in every process, before the first step. docs/fairness.md explains the rows.
    """
    if not run.launched:
        launching.begin_training(run)
    of = Functions(build_model, make_replica, train_steps, predict, make_loader)
    run.loop.predict = of.predict
    held = run.framework.dump_weights(replica.network)
    rows = [reference_checks.same_weights(held, run.initial.arrays)]
    rows += _coverage(run, of)
    recipe = run.setup.recipe.recipe
    rows += training_loop.check_fairness(
        lambda trial: run.apart(partial(_walked, run, of, trial)),
        devices=run.setup.replicas,
        precision=recipe.precision,
        rule=recipe.rule,
        task=recipe.task,
        skipped=run.framework.SKIPPED,
    )
    exact, framework = None, _over_all(run)
    if run.recipe.network != "own":  # in float64, with the reference's weights
        with run.recipe.varied(outputs=OUTPUTS):
            weights = reference.arrays(run.recipe.network)
            exact = run.framework.exact(_build(run, of), weights)
    rows += run.apart(partial(_on_all_devices, run, of, exact, framework))
    worst = [  # each row as the process has it in which it is worst
        max(each, key=lambda row: (_ORDER.index(row.verdict), row.difference or 0.0))
        for each in zip(*run.gather(rows), strict=True)
    ]
    of_network = partial(_of_network, run, of, exact, framework)
    alone = run.apart(of_network) if run.rank == 0 else []
    if hasattr(run.framework, "free_memory"):
        run.framework.free_memory(run.own_devices)
    run.gather(None)  # the others wait here and not in a collective of training
    if run.rank == 0:
        run.loop.updated([*worst[:1], *alone, *worst[1:]])
        run.tell(showing.table, run.loop.fairness.table())


def _walked(
    run: RunState, of: Functions, trial: training_loop.Trial
) -> tuple[float, Mapping[str, Any], np.ndarray]:
    """A trial's loss with the shallow network, and the weights and logits after its steps."""
    rule = trial.rule
    with run.recipe.varied(
        optimizer="adam" if rule.name == "adam" else "sgd",
        momentum=rule.momentum,
        weight_decay=rule.weight_decay,
        learning_rate=1.0,
        lr_scaling="none",
        rates=trial.rates,
        epochs=1,
        steps=trial.steps,
        outputs=OUTPUTS,
        batch_size=len(trial.shares[0][0]),
    ):
        other = of.make_replica(run.framework.shallow(trial.weights, run.own_devices))
        batch, count = _batch(run, trial.shares)
        # From the second epoch on training follows an evaluation: it has to switch back.
        of.predict(other, [batch], count)
        loss = of.train_steps(other, repeat(batch, trial.steps), trial.steps)
        logits = np.asarray(of.predict(other, [batch], count))
        # After the evaluation, like a checkpoint: it may share BatchNorm's statistics.
        return loss, run.framework.dump_weights(other.network), logits


def _batch(run: RunState, shares: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[Any, int]:
    """This process's shares as a batch of the notebook's loader, and the images of all."""
    own = len(shares) // run.loop.processes
    mine = shares[run.rank * own : (run.rank + 1) * own]
    # The reference's images are grey; a loop that trains on RGB gets that plane three times.
    pixels = np.concatenate([share.repeat(run.images.recipe.planes, axis=3) for share, _ in mine])
    targets = np.concatenate([targets for _, targets in mine])
    numbers = run.rank * len(pixels) + np.arange(len(pixels))
    return run.framework.as_loaded(pixels, targets, numbers), sum(len(share) for share, _ in shares)


def _of_network(run: RunState, of: Functions, exact: Any, framework: Any) -> list[Check]:
    """The network in float64 against the reference, on all devices if this process has them."""
    network = run.recipe.network
    if network == "own":
        return [Check(name, None, None, custom_network.OWN) for name in custom_network.UNKNOWN]
    alone, even = run.loop.processes == 1, reference.IMAGES % len(run.own_devices) == 0
    devices = run.own_devices if alone and even else run.own_devices[:1]
    with run.recipe.varied(outputs=OUTPUTS):
        return [
            *reference_checks.same_network(framework, exact, devices, network),
            *reference_checks.same_in_training(run.framework, _build(run, of), exact, network),
        ]


def _on_all_devices(run: RunState, of: Functions, exact: Any, framework: Any) -> list[Check]:
    """Gradients of all devices against one, in float64."""
    network, world = run.recipe.network, run.setup.replicas
    devices = (run.own_devices * world)[:world]  # of other processes, too
    if network != "own":
        return reference_checks.same_on_all_devices(framework, exact, devices, network)
    recipe, outputs = run.setup.recipe.recipe, run.recipe.outputs
    given = _build(run, of), run.initial, devices, recipe, outputs
    return custom_network.same_on_all_devices(framework, *given)


def _over_all(run: RunState) -> Any:
    """The framework's functions over the devices of all processes; equal gradients only once."""
    framework, one_process = run.framework, run.loop.processes == 1
    known: dict[tuple[int, bytes, int], tuple[Any, Any]] = {}

    def gradients(model: Any, images: Any, targets: Any, devices: Sequence[Any]) -> Any:
        given, alone = (id(model), images.tobytes(), len(devices)), len(devices) == 1
        if given not in known:  # and the model is kept, so that no other one has its id
            on = run.own_devices[:1] if alone else run.own_devices
            compute = framework.gradients if alone or one_process else framework.rank_gradients
            known[given] = model, compute(model, images, targets, on)
        return known[given][1]

    def shallow(arrays: Mapping[str, np.ndarray], devices: Sequence[Any]) -> Any:
        return framework.shallow(arrays, run.own_devices)

    found = {"shallow": shallow, "gradients": gradients}
    return SimpleNamespace(exact=framework.exact, logits=framework.logits, **found)


def _build(run: RunState, of: Functions) -> Callable[[Mapping[str, np.ndarray]], Any]:
    def build(arrays: Mapping[str, np.ndarray]) -> Any:
        before, run.other_arrays = run.other_arrays, arrays
        try:
            return of.build_model()
        finally:
            run.other_arrays = before

    return build


def _coverage(run: RunState, of: Functions) -> list[Check]:
    """Who takes part, which images each process reads, and what an evaluation gives."""
    r, processes = run.recipe, run.loop.processes
    train, even, valid = _splits(run)
    with r.varied(outputs=OUTPUTS):
        loader = of.make_loader(train, True)
        epochs = tuple(_numbers(run, loader, epoch) for epoch in (0, 1))
        whole = _numbers(run, of.make_loader(even, True), 0)
        logits, numbers, seen = run.apart(partial(_evaluated, run, of, valid))
    last = run.framework.slowest(float(run.rank), run.own_devices)
    # Slurm may call a host by two names.
    who = run.rank, run.setup.replicas // processes, socket.gethostname(), os.getpid()
    answers = run.gather(process_checks.Answer(*who, last, epochs, whole, logits))
    used = len(train) - len(train) % run.setup.recipe.global_batch_size
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
    run: RunState, of: Functions, valid: Split
) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """A shallow network's logits, each batch's numbers, and what the network sees of the first."""
    other = of.make_replica(run.framework.shallow(reference.shallow_arrays(), run.own_devices))
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
    """Some images to train on, black ones that fill whole batches, and some to evaluate."""
    batch, world = run.setup.recipe.global_batch_size, run.setup.replicas
    most = max(MOST, 3 * batch)
    train = _few(run.train_split, most, batch, batch)
    valid = _few(run.valid_split, most, 1, batch, world)
    count = max(min(len(run.train_split), MOST_EVEN) // batch, 1) * batch
    black, targets = np.zeros_like(run.train_split.read(0)), run.train_split.targets
    even = Split([black] * count, np.resize(targets, (count, *targets.shape[1:])), np.copy)
    return train, even, valid


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
