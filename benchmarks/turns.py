"""Loads that take turns: on a machine whose speed wanders, only figures side by side compare."""

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
"""With so many workers, one process's ready batches, without end."""
Speeds: TypeAlias = dict[str, list[float]]
"""Images/s (or another figure) of each load, round by round."""


def take_turns(
    loads: Mapping[str, Callable[[int], Any]], batch: int, rounds: int, steps: int
) -> tuple[Speeds, ...]:
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
) -> tuple[Speeds, ...]:
    """Speeds of loaders that deliver for ``seconds`` a turn, with nothing behind them.

    Each is begun anew for its turn, whose clock starts at a batch that arrives when what the
    workers had read ahead is used up: so the speed is what they can keep up.
    """

    def turn(loader: Batches) -> Callable[[], tuple[float, float]]:
        def begin() -> tuple[float, float]:
            with contextlib.closing(loader(workers)) as stream:  # type: ignore[type-var]
                for _ in range(2 + 2 * workers):
                    next(stream)
                return timed(lambda: delivered(stream, seconds) * batch)

        return begin

    return by_turns({name: turn(loader) for name, loader in loaders.items()}, rounds)


def delivered(stream: Iterator[Any], seconds: float) -> int:
    """How many batches come in that time, with the one under way at its end."""
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        next(stream)
        count += 1
    return count


def by_turns(
    turns: Mapping[str, Callable[[], tuple[float, ...]]], rounds: int
) -> tuple[Speeds, ...]:
    """Each figure that a turn gives, by name and round; who begins changes by turns too."""
    given: dict[str, list[tuple[float, ...]]] = {name: [] for name in turns}
    order = list(turns)
    for _ in range(rounds):
        for name in order:
            given[name].append(turns[name]())
        order = order[1:] + order[:1]
    columns = {name: list(map(list, zip(*rows, strict=True))) for name, rows in given.items()}
    figures = zip(*columns.values(), strict=True)
    return tuple(dict(zip(columns, each, strict=True)) for each in figures)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock, and of the processor, which neighbours who take the cores away hardly
    change."""
    processor, began = processor_seconds(), time.perf_counter()
    work()
    return time.perf_counter() - began, processor_seconds() - processor


def timed(work: Callable[[], int]) -> tuple[float, float]:
    """Images per second of the clock, and of the processor; ``work`` gives their number."""
    images: list[int] = []
    clock, processor = seconds(lambda: images.append(work()))
    return images[0] / clock, images[0] / processor


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


def report(
    figure: str, unit: str, ours: Sequence[float], rival: Sequence[float], name: str
) -> None:
    """Medians, and of the rounds' ratios with its interval, above 1 where ours is better; also as
    JSON. What is not images/s is the better the less it is."""
    pairs = (ours, rival) if unit == "images/s" else (rival, ours)
    ratios = [a / b for a, b in zip(*pairs, strict=True)]
    mine, theirs = map(statistics.median, (ours, rival))
    ratio, low, high = intervals.of_median(ratios)
    print(
        f"  {figure}: {mine:,.4g} {unit}, {name} {theirs:,.4g}: {ratio:.3f} times "
        f"({low:.3f} to {high:.3f})"
    )
    line = {"figure": figure, "unit": unit, "ours": mine, "rival": theirs}
    line |= {"rival_name": name, "ratio": ratio, "low": low, "high": high, "ratios": ratios}
    line |= {"rounds": len(ours)}
    print(json.dumps(line), flush=True)


def report_turns(
    what: str, turns: tuple[Speeds, ...], ours: str, rival: str, name: str = ""
) -> None:
    """Report two loads of :func:`take_turns`: by the clock, and by processor time."""
    for how, found in zip(("", ", of processor time"), turns, strict=True):
        report(f"{what}{how}", "images/s", found[ours], found[rival], name or rival)
