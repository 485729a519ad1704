"""Loads that take turns: on a machine whose speed wanders, only figures side by side compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any


def take_turns(
    loads: Mapping[str, Callable[[int], Any]], batch: int, rounds: int, steps: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Images/s of each load in each round of ``steps`` steps; who begins changes by turns too.

    And images per second of this process's processor time, which neighbours who take the cores
    away hardly change.
    """
    for take in loads.values():
        take(2)
    speeds: dict[str, list[float]] = {name: [] for name in loads}
    per_processor_second: dict[str, list[float]] = {name: [] for name in loads}
    order = list(loads)
    for _ in range(rounds):
        for name in order:
            began, processor = time.perf_counter(), time.process_time()
            loads[name](steps)
            speeds[name].append(steps * batch / (time.perf_counter() - began))
            per_processor_second[name].append(steps * batch / (time.process_time() - processor))
        order = order[1:] + order[:1]
    return speeds, per_processor_second
