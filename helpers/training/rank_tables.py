"""Show the measurements of a run's ranks and their network, in words and as a table."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from helpers.training import run_tables, step_parts


def lines(cluster: Mapping[str, Any]) -> list[str]:
    """The slowest rank, in a sentence."""
    said = step_parts.in_words(cluster.get("step_parts", []))
    return [said] if said else []


def parts(cluster: Mapping[str, Any]) -> pd.DataFrame | None:
    """Median seconds of a step's parts, a row for each rank."""
    ranks = cluster.get("step_parts", [])
    return run_tables.shown(step_parts.table(ranks), 4) if ranks else None
