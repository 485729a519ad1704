"""Show what the devices of several runs waited for, and whether their loaders keep up."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

import pandas as pd

from helpers.results import tables
from helpers.results.comparison import Comparison, Entry, latest_of_each, repeats
from helpers.results.repeated_runs import widest_first
from helpers.results.tables import ABSENT, Cell, Table, of_row, share, short_number
from helpers.training import attribution

COMPILING = "compiling"
WAITS = {"data": "data", "communication": "each other", COMPILING: COMPILING}
"""The report's name for each wait: the shares of a record's attribution, and compiling."""


def numbers(compared: Comparison) -> pd.DataFrame:
    """One row per run: each share (0 to 1), and its ends if there are any.

    Columns: the shares of an epoch, ``<share>_low``, ``<share>_high`` (95 % interval), NaN if the
    rounds are too noisy to tell, and never below 0; compiling, as a share of the training.
    """
    rows = {}
    for entry in latest_of_each(compared.finished):
        found, row = entry.content["attribution"], dict[str, float]()
        for name, value in found["shares"].items():
            values = [math.nan] * 3
            if attribution.is_measured(found, name):
                values = [max(each, 0.0) for each in (value, *found["intervals"][name])]
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))
        rows[entry.run] = row | {COMPILING: attribution.compiling(entry.content)}
    return pd.DataFrame.from_dict(rows, orient="index", dtype=float).rename_axis("run")


def limited_by(entries: Sequence[Entry]) -> str:
    """``compiling 68 %``; ``data 20 %, each other 9 %``; ``compute``; ``not measurable``.

    A wait is named if every one of these repeats shows it. Data and each other are shares of an
    epoch; compiling is a share of the whole training.
    """
    each = []
    for entry in entries:
        first = attribution.compiling(entry.content)
        compiled = {COMPILING: first} if first > attribution.LITTLE else {}
        each.append(attribution.telling(entry.content["attribution"]) | compiled)
    waits = {
        name: median(one[wait] for one in each)
        for wait, name in WAITS.items()
        if all(wait in one for one in each)
    }
    if waits:
        order = sorted(waits, key=waits.__getitem__, reverse=True)
        return ", ".join(f"{name} {share(waits[name])}" for name in order)
    bounded = all(attribution.leaves_little(entry.content["attribution"]) for entry in entries)
    return "compute" if bounded else "not measurable"


def table(compared: Comparison) -> Table:
    """What each label's last run on the most devices waited for, and its loader headroom."""
    groups, rows = repeats(compared.finished), []
    found, count = widest_first(compared)
    most = found["devices"].max()
    for row in found.head(count).to_dict("records"):
        entries = groups[row["label"], row["devices"]]
        last, supply = entries[-1].content, row["loader_images_per_second"]
        demand = row["synthetic_images_per_second"]
        cells: dict[str, Cell | str] = {
            f"for {WAITS[wait]}": _cell(last["attribution"], wait) for wait in attribution.WAITS
        }
        compiled = [attribution.compiling(entry.content) for entry in entries]
        cells[COMPILING] = Cell(median(compiled), share, min(compiled), max(compiled))
        times = supply / demand if demand > 0 else None
        cells["loader headroom"] = Cell(times, lambda value: f"x {short_number(value)}")
        enough = row["loader_images_per_second_low"] >= row["synthetic_images_per_second_high"]
        cells["change first"] = ABSENT if enough else attribution.first_change(last) or ABSENT
        rows.append((of_row(row, most), cells))
    return tables.table(
        "What limits training",
        tables.on(most),
        rows,
        note="Waits are shares of an epoch, with 95 % intervals. They are measured in rounds that "
        "leave out loading, then the all-reduce. Compiling is a share of the whole training. "
        "Loader headroom is the images/s of the loader alone, divided by those of training on "
        "synthetic data.",
    )


def _cell(found: dict[str, Any], name: str) -> Cell:
    """``13 % (10 to 15)`` of an epoch; in words if there is no such number."""
    if name not in found["shares"]:
        return Cell(ABSENT)
    if (said := attribution.in_words(found, name)) in (attribution.NOISY, attribution.NO_WAIT):
        return Cell(said)
    return Cell(found["shares"][name], share, *found["intervals"][name])
