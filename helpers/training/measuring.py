"""Measure images/s in rounds: on real data, on synthetic data, and for parts of a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from helpers.errors import LoaderError, UserError
from helpers.fairness import training_checks
from helpers.fairness.check_results import Check
from helpers.record import sections
from helpers.training import measurement_rounds, other_programs, samplers, showing
from helpers.training.measurement_rounds import TRAINED, Seconds
from helpers.training.run_state import RunState

MEASUREMENTS = {
    "files": "files",
    "synthetic": "synthetic",
    "no_all_reduce": "no_allreduce",
    "all_reduce": "no_allreduce",
    "loader": "loader",
}
"""The measurements of a notebook, and their sections of the record.

A notebook of several devices has ``no_all_reduce``; or ``all_reduce``, the all-reduce alone, where
a step without it would have to be compiled. Its time is taken off that of a step on synthetic data.
"""
FROM_THEM = ("other_programs", "monitor", "energy", "memory", "attribution")
"""The record's sections that follow from the measurements."""
READ_AHEAD = 2
"""Batches that each loader worker has ready: ``DataLoader``'s default."""
MOST_BATCHES = 2**20
"""In a measurement of the loader alone, which may be a function that reads nothing."""
AMOUNT = "steps, updates and images in the measurements"


@dataclass
class Amount:
    """What one process did while measured on files, or on synthetic data; ``wanted`` are steps."""

    wanted: int = 0
    steps: int = 0
    updates: int = 0
    images: int = 0


def measure(run: RunState, **measurements: Callable[[int], Any]) -> None:
    """Measure images/s in interleaved rounds, of functions that take n steps; record them."""
    if wrong := [name for name in measurements if name not in MEASUREMENTS]:
        raise UserError(f"run.measure: {wrong[0]} is not one of {', '.join(MEASUREMENTS)}")
    run.tell(showing.remove, *MEASUREMENTS.values(), *FROM_THEM)
    recipe, world = run.setup.recipe, run.setup.replicas
    done = {kind: Amount() for kind in TRAINED}

    def first(value: Any) -> Any:
        return run.gather(value)[0]

    ahead = first(max(READ_AHEAD * run.workers * len(run.own_devices), 1))
    timed = {
        MEASUREMENTS[name]: _timed(run, name, take, done, ahead)
        for name, take in measurements.items()
    }
    if world == 1:
        timed.pop("no_allreduce", None)
    many = first(measurement_rounds.steps_of_a_repeat(run.loop.typical_step))
    batches, least = ahead, measurement_rounds.LOADER_SECONDS
    with run.monitor.phase("warm-up"):  # which tells how long a step on synthetic data takes
        quick = first(measurement_rounds.steps_of_a_repeat(timed["synthetic"](many)))
        # Equally many in all processes, which may agree on each batch.
        while batches < MOST_BATCHES and first(timed["loader"](batches)) * batches < least:
            batches *= 2
    steps = {"files": many, "synthetic": quick, "no_allreduce": quick, "loader": batches}
    own = recipe.global_batch_size // run.loop.processes
    with run.others.during("rounds"):
        seconds = measurement_rounds.interleaved(
            run.monitor.phase, timed, steps=steps, images=own, first=first
        )
    if "all_reduce" in measurements and world > 1:
        pairs = zip(seconds["synthetic"], seconds["no_allreduce"], strict=True)
        seconds["no_allreduce"] = [step - reduction for step, reduction in pairs]
    each, amounts = run.gather(seconds), run.gather(done)
    others = other_programs.as_record(run.gather(run.others.used()))
    if run.rank == 0:
        if others["cores"]:
            run.tell(showing.add, "other_programs", others)
        run.loop.updated([amount(amounts, own, overflows=run.recipe.precision == "fp16")])
        for name, found in as_record(each, recipe.global_batch_size).items():
            run.tell(showing.add, name, found)
    if not run.launched:
        samplers.stop(run.monitor)


def _timed(
    run: RunState, name: str, take: Callable[[int], Any], done: Mapping[str, Amount], ahead: int
) -> measurement_rounds.Measurement:
    """The mean seconds of a step, without the first; of a loader's without the ``ahead`` ready."""

    def of_steps(steps: int) -> float:
        before = run.loop.notes.watch.updates()
        vars(run.loop).pop("clock", None)
        take(steps + 1)
        clock = getattr(run.loop, "clock", None)
        if clock is None or clock.steps < 2:
            raise LoaderError(
                f"run.measure: {name} took fewer than 2 of {steps + 1} steps; let it take a step "
                "for each batch of run.watch(...)"
            )
        if name in done:
            counted = done[name]
            counted.wanted += steps + 1
            counted.steps += clock.steps
            counted.updates += run.loop.notes.watch.updates() - before
            counted.images += clock.images
        # Some take more steps, one device after another.
        seconds: float = fmean(clock.step_seconds) * clock.steps / (steps + 1)
        return seconds

    def of_batches(steps: int) -> float:
        take(ahead)
        start = time.perf_counter()
        take(steps)
        return (time.perf_counter() - start) / steps

    return of_batches if name == "loader" else of_steps


def amount(each: Sequence[Mapping[str, Amount]], own: int, *, overflows: bool) -> Check:
    """Check the steps that the clock counted, the optimiser's updates and the images received."""
    wrong: dict[str, int] = {}
    for kind, found in [entry for process in each for entry in process.items()]:
        steps, images = found.wanted, own * found.wanted
        off = training_checks.updates_off(found.updates, steps, overflows=overflows)
        wrong |= {
            f"{kind}: {found.steps} instead of {steps} steps": found.steps - steps,
            f"{kind}: {found.updates} updates in {steps} steps": off,
            f"{kind}: {found.images} instead of {images} images": found.images - images,
        }
    fair = [
        f"{kind}: {found.wanted} steps, {found.updates} updates, {found.images} images"
        for kind, found in each[0].items()
    ]
    worst = max(map(abs, wrong.values()))
    said = [what for what, off in wrong.items() if off] or fair
    return Check(AMOUNT, float(worst), 0.0, "; ".join(said))


def as_record(replicas: Sequence[Seconds], images: int) -> dict[str, Any]:
    """The record's sections ``files``, ``synthetic``, ``no_allreduce`` and ``loader``, by name."""
    found = {}
    for kind in replicas[0]:
        slowest = list(map(max, zip(*(each[kind] for each in replicas), strict=True)))
        if min(slowest) > 0:  # a tiny network's all-reduce alone may take longer than its step
            found[kind] = sections.throughput([images / seconds for seconds in slowest])
    return found
