"""Loads that take turns: on a machine whose speed wanders, only figures side by side compare."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import psutil

from helpers.training import loader_workers
from helpers.training.loader_workers import Batches

Speeds: TypeAlias = dict[str, list[float]]
"""Images/s of each load, round by round."""


def take_turns(
    loads: Mapping[str, Callable[[int], Any]], batch: int, rounds: int, steps: int
) -> tuple[Speeds, Speeds]:
    """Speeds of loads that take ``steps`` steps a turn, of ``batch`` images each."""

    def turn(take: Callable[[int], Any]) -> Callable[[], tuple[float, float]]:
        def taken() -> int:
            take(steps)
            return steps * batch

        take(2)
        return lambda: timed(taken)

    return by_turns({name: turn(take) for name, take in loads.items()}, rounds)


def take_loaders_turns(
    loaders: Mapping[str, Batches], workers: int, batch: int, rounds: int, seconds: float
) -> tuple[Speeds, Speeds]:
    """Speeds of loaders that deliver for ``seconds`` a turn, with nothing behind them.

    Each is begun anew for its turn, whose clock starts at a batch that arrives when what the
    workers had read ahead is used up: so the speed is what they can keep up.
    """

    def turn(loader: Batches) -> Callable[[], tuple[float, float]]:
        def begin() -> tuple[float, float]:
            with loader_workers.under_way(loader, workers) as stream:
                return timed(lambda: loader_workers.delivered(stream, seconds) * batch)

        return begin

    return by_turns({name: turn(loader) for name, loader in loaders.items()}, rounds)


def by_turns(
    turns: Mapping[str, Callable[[], tuple[float, float]]], rounds: int
) -> tuple[Speeds, Speeds]:
    """What each turn gives in each round, by name; who begins changes by turns too."""
    by_clock: Speeds = {name: [] for name in turns}
    by_processor: Speeds = {name: [] for name in turns}
    order = list(turns)
    for _ in range(rounds):
        for name in order:
            clock, processor = turns[name]()
            by_clock[name].append(clock)
            by_processor[name].append(processor)
        order = order[1:] + order[:1]
    return by_clock, by_processor


def timed(work: Callable[[], int]) -> tuple[float, float]:
    """Images per second of the clock, and of processor time, which neighbours who take the cores
    away hardly change. ``work`` gives the number of images."""
    began, processor = time.perf_counter(), processor_seconds()
    images = work()
    return (
        images / (time.perf_counter() - began),
        images / (processor_seconds() - processor),
    )


def processor_seconds() -> float:
    """The time of this process and of all that it has started, such as a loader's workers."""
    found = time.process_time()  # finer than what the system says of other processes
    own = psutil.Process()
    ended = own.cpu_times()
    found += ended.children_user + ended.children_system
    for child in own.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            used = child.cpu_times()
            found += used.user + used.system + used.children_user + used.children_system
    return float(found)
