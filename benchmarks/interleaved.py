"""Interleave loads: where speed varies, only measurements seconds apart can be compared."""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import psutil

from helpers.results import intervals

Batches: TypeAlias = Callable[[int], Iterator[Any]]
"""Returns one process's endless batches, loaded by that many workers."""
Speeds: TypeAlias = dict[str, list[float]]
"""Images/s (or another quantity) of each load, by round."""


def measure_loads(
    loads: Mapping[str, Callable[[int], Any]], batch: int, rounds: int, steps: int
) -> tuple[Speeds, ...]:
    """Return the speeds of loads that take ``steps`` steps of ``batch`` images in each round."""

    def load(take: Callable[[int], Any]) -> Callable[[], tuple[float, float]]:
        def taken() -> int:
            take(steps)
            return steps * batch

        take(2)
        return lambda: timed(taken)

    return interleave({name: load(take) for name, take in loads.items()}, rounds)


def measure_loaders(
    loaders: Mapping[str, Batches], workers: int, batch: int, rounds: int, seconds: float
) -> tuple[Speeds, ...]:
    """Return the speeds of loaders alone that deliver for ``seconds`` in each round.

    Each round starts a new loader. Its clock starts when the batches that the workers had read
    ahead are used up, so the speed is one that they can sustain.
    """

    def load(loader: Batches) -> Callable[[], tuple[float, float]]:
        def begin() -> tuple[float, float]:
            with contextlib.closing(loader(workers)) as stream:  # type: ignore[type-var]
                for _ in range(2 + 2 * workers):
                    next(stream)
                return timed(lambda: delivered(stream, seconds) * batch)

        return begin

    return interleave({name: load(loader) for name, loader in loaders.items()}, rounds)


def delivered(stream: Iterator[Any], seconds: float) -> int:
    """Count the batches that arrive in that time, including the last that began in it."""
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        next(stream)
        count += 1
    return count


def interleave(
    loads: Mapping[str, Callable[[], tuple[float, ...]]], rounds: int
) -> tuple[Speeds, ...]:
    """Call every load once per round, and return its results by name and round.

    The order rotates from round to round.
    """
    given: dict[str, list[tuple[float, ...]]] = {name: [] for name in loads}
    order = list(loads)
    for _ in range(rounds):
        for name in order:
            given[name].append(loads[name]())
        order = order[1:] + order[:1]
    columns = {name: list(map(list, zip(*rows, strict=True))) for name, rows in given.items()}
    results = zip(*columns.values(), strict=True)
    return tuple(dict(zip(columns, each, strict=True)) for each in results)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall-clock and processor seconds; other programs hardly change the latter."""
    processor, began = processor_seconds(), time.perf_counter()
    work()
    return time.perf_counter() - began, processor_seconds() - processor


def timed(work: Callable[[], int]) -> tuple[float, float]:
    """Return images per wall-clock and per processor second; ``work`` returns their number."""
    images: list[int] = []
    clock, processor = seconds(lambda: images.append(work()))
    return images[0] / clock, images[0] / processor


def processor_seconds() -> float:
    """Return the processor time of this process and its children, such as a loader's workers."""
    found = time.process_time()  # finer than what the system says of other processes
    own = psutil.Process()
    ended = own.cpu_times()
    found += ended.children_user + ended.children_system
    for child in own.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            used = child.cpu_times()
            found += used.user + used.system + used.children_user + used.children_system
    return float(found)


def report(
    result: str, unit: str, ours: Sequence[float], rival: Sequence[float], name: str
) -> None:
    """Print both medians, and the median ratio with its interval, also as JSON.

    The ratio is above 1 if ours is better: more images/s, or less of any other unit.
    """
    pairs = (ours, rival) if unit == "images/s" else (rival, ours)
    ratios = [a / b for a, b in zip(*pairs, strict=True)]
    mine, theirs = map(statistics.median, (ours, rival))
    ratio, low, high = intervals.of_median(ratios)
    print(
        f"  {result}: {mine:,.4g} {unit}, {name} {theirs:,.4g}: {ratio:.3f} times "
        f"({low:.3f} to {high:.3f})"
    )
    line = {"result": result, "unit": unit, "ours": mine, "rival": theirs}
    line |= {"rival_name": name, "ratio": ratio, "low": low, "high": high, "ratios": ratios}
    line |= {"rounds": len(ours)}
    print(json.dumps(line), flush=True)


def report_loads(
    what: str, speeds: tuple[Speeds, ...], ours: str, rival: str, name: str = ""
) -> None:
    """Report two loads of :func:`measure_loads`, by wall-clock and by processor time."""
    for how, found in zip(("", ", of processor time"), speeds, strict=True):
        report(f"{what}{how}", "images/s", found[ours], found[rival], name or rival)
