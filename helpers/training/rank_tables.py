"""Show the measurements of a run's ranks and their network, in words and as a table."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from helpers.training import bus_bandwidth, run_tables, step_parts


def lines(cluster: Mapping[str, Any]) -> list[str]:
    """In sentences: the all-reduce alone, the slowest rank, the difference of the clocks."""
    found = []
    if (all_reduce := cluster.get("all_reduce")) is not None:
        found.append(f"All-reduce alone: {bus_bandwidth.in_words(all_reduce)}.")
    found.append(step_parts.in_words(cluster.get("step_parts", [])))
    clocks = [
        f"{clock['host']}'s by {clock['ahead']:+.4f} s (within {clock['within']:.4f} s)"
        for clock in cluster.get("clocks", [])
    ]
    if clocks:
        found.append(f"Clocks ahead of rank 0's: {', '.join(clocks)}; traces are corrected.")
    return [line for line in found if line]


def parts(cluster: Mapping[str, Any]) -> pd.DataFrame | None:
    """Median seconds of a step's parts, a row for each rank."""
    ranks = cluster.get("step_parts", [])
    return run_tables.shown(step_parts.table(ranks), 4) if ranks else None
