"""Loads that take turns: on a machine whose speed wanders, only figures side by side compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any


def take_turns(
    loads: Mapping[str, Callable[[int], Any]], batch: int, rounds: int, steps: int
) -> dict[str, list[float]]:
    """Images/s of each load in each round of ``steps`` steps; who begins changes by turns too."""
    for take in loads.values():
        take(2)
    speeds: dict[str, list[float]] = {name: [] for name in loads}
    order = list(loads)
    for _ in range(rounds):
        for name in order:
            began = time.perf_counter()
            loads[name](steps)
            speeds[name].append(steps * batch / (time.perf_counter() - began))
        order = order[1:] + order[:1]
    return speeds
