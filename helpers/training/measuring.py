"""Measure a notebook's turns in rounds: images/s of files, synthetic data and parts of a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from helpers import record
from helpers.errors import UserError
from helpers.frameworks.precisions import DTYPES
from helpers.launch import samplers
from helpers.training import arithmetic, measurement_rounds, other_programs
from helpers.training.measurement_rounds import PRODUCT, Seconds

if TYPE_CHECKING:
    from helpers.training.run_state import RunState

TURNS = {
    "files": "files",
    "synthetic": "synthetic",
    "no_all_reduce": "no_allreduce",
    "all_reduce": "no_allreduce",
    "loader": "loader",
}
"""The turns of a notebook, and their sections of the record.

A notebook of several devices has ``no_all_reduce``; or ``all_reduce``, the all-reduce alone, where
a step without it would have to be compiled. Its time is taken off that of a step on synthetic data.
"""
FROM_THEM = ("arithmetic", "other_programs", "monitor", "energy", "memory", "attribution")
"""The record's sections that follow from the measurements."""
READ_AHEAD = 2
"""Batches that each loader worker has ready: ``DataLoader``'s default."""


def measure(run: RunState, turns: Mapping[str, Callable[[int], Any]]) -> None:
    """See :meth:`helpers.run.Run.measure`."""
    if wrong := [name for name in turns if name not in TURNS]:
        raise UserError(f"run.measure: {wrong[0]} is not one of {', '.join(TURNS)}")
    run.loop.check_trained("run.measure")
    run.tell("remove", *TURNS.values(), *FROM_THEM)
    recipe, world = run.setup.recipe, run.setup.replicas
    steps = run.gather(measurement_rounds.steps_of_a_turn(run.loop.history))[0]
    timed = {TURNS[name]: _timed(run, name, turn) for name, turn in turns.items()}
    if world == 1:
        timed.pop("no_allreduce", None)
    timed[PRODUCT] = lambda steps: _product(run)
    with run.monitor.phase("warm-up"):
        turns["synthetic"](1)
    own = recipe.global_batch_size // run.loop.processes
    with run.others.during("rounds"):
        seconds = measurement_rounds.take_turns(run.monitor.phase, timed, steps=steps, images=own)
    if "all_reduce" in turns and world > 1:
        pairs = zip(seconds["synthetic"], seconds["no_allreduce"], strict=True)
        seconds["no_allreduce"] = [step - reduction for step, reduction in pairs]
    each: list[Seconds] = run.gather(seconds)
    others = other_programs.as_record(run.gather(run.others.used()))
    if run.rank == 0:
        if others["cores"]:
            run.tell("add", "other_programs", others)
        _record(run, measurement_rounds.slowest(each), steps)
    if not run.launched:
        samplers.stop(run.monitor)


def _timed(run: RunState, name: str, turn: Callable[[int], Any]) -> measurement_rounds.Turn:
    """A turn that returns the mean seconds of a step, without the first."""

    def of_steps(steps: int) -> float:
        turn(steps + 1)
        clock = run.loop.clock  # of the steps that it really took, one device after another
        return clock.seconds_a_step * clock.steps / (steps + 1)

    def of_batches(steps: int) -> float:
        ahead = READ_AHEAD * run.workers * len(run.own_devices)
        turn(ahead)
        count, start = 0, time.perf_counter()
        while count < max(ahead, 1) or time.perf_counter() - start < _LOADER_SECONDS:
            turn(1)
            count += 1
        return (time.perf_counter() - start) / count

    return of_batches if name == "loader" else of_steps


_LOADER_SECONDS = measurement_rounds.LOADER_SECONDS


def _product(run: RunState) -> float:
    """Seconds of a matrix product on each of this process's devices at the same time."""
    kind, precision = run.setup.devices.kind, run.recipe.precision
    return arithmetic.seconds_a_product(run.own_devices, kind, run.framework, precision)


def _record(run: RunState, seconds: Seconds, steps: int) -> None:
    """Show and record the rounds, of which each is the slowest process's."""
    kind, world = run.setup.devices.kind, run.setup.replicas
    seconds = measurement_rounds.without_the_impossible(seconds)
    images = run.setup.recipe.global_batch_size
    measured = measurement_rounds.as_record(seconds, steps=steps, images=images)
    for name, found in measured.items():
        run.tell("add", name, found)
    flops = arithmetic.flops_of_product(kind, world)
    r = run.recipe
    computed = record.arithmetic(
        [flops / round for round in seconds[PRODUCT]],
        size=arithmetic.SIZES[kind],
        dtype=DTYPES[r.precision],
        flops_per_image=arithmetic.flops_of_training(r.network, r.outputs, r.crop),
        measured=measured,
    )
    run.tell("add", "arithmetic", computed)
    said = arithmetic.in_words(computed)
    if world == 1:
        said += "\nOne device has no all-reduce to leave out, so there are three measurements."
    elif "no_allreduce" not in measured:
        said += f"\nWithout all-reduce is left out: {measurement_rounds.IMPOSSIBLE}."
    run.tell("say", f"{said}\n")
    run.tell("show", measurement_rounds.table(measured))
