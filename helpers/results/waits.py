"""What the devices of several runs waited for, and whether their loaders deliver enough."""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median
from typing import Any

import pandas as pd

from helpers.results import tables
from helpers.results.comparability import RANKED
from helpers.results.comparison import ENDS, KEPT, Comparison, Entry, latest_of_each, repeats
from helpers.results.repeated_runs import summarise, widest_first
from helpers.results.tables import ABSENT, Cell, Head, Table, of_row, share, short_number
from helpers.training import attribution, loader_advice

COMPILING = "compiling"
WAITS = {"data": "data", "communication": "each other", COMPILING: COMPILING}
"""By share of a record's attribution, and compiling: how the report calls the wait."""
NOTHING = "nothing"
_SUPPLY, _DEMAND = "loader_images_per_second", "synthetic_images_per_second"
_FILES = "files_images_per_second"


def numbers(compared: Comparison) -> pd.DataFrame:
    """Rows runs; of each share (0 to 1) its value, and its ends where it has some.

    Columns: the shares of an epoch, ``<share>_low``, ``<share>_high`` (95 % interval), NaN where
    rounds are too noisy to tell and never below 0; compiling, as a share of the training.
    """
    rows = {}
    for entry in latest_of_each(compared.finished):
        found, row = entry.content["attribution"], dict[str, float]()
        for name, value in found["shares"].items():
            figures = [math.nan] * 3
            if attribution.is_measured(found, name):
                figures = [max(each, 0.0) for each in (value, *found["intervals"][name])]
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), figures, strict=True))
        rows[entry.run] = row | {COMPILING: attribution.compiling(entry.content)}
    return pd.DataFrame.from_dict(rows, orient="index", dtype=float).rename_axis("run")


@lru_cache(maxsize=KEPT)
def supply(compared: Comparison) -> pd.DataFrame:
    """A row a label and number of devices, with medians and extremes of repeats.

    Columns: label, devices, runs, kind, marks, the rates of files, loader and synthetic data, fed
    (how many devices the loader feeds; missing of devices that share hardware), workers, cores (on
    which the loader may work) and change (what to change first: ``NOTHING`` where supply suffices,
    empty where the record tells nothing).
    """
    groups = repeats(compared.finished)
    rows: list[dict[str, Any]] = []
    for row in summarise(compared).to_dict("records"):
        last = groups[row["label"], row["devices"]][-1].content
        found = {name: row[name] for name in ("label", "devices", "runs", "kind", "marks")}
        found |= {
            f"{rate}{end}": row[f"{rate}{end}"]
            for rate in (_SUPPLY, _DEMAND, _FILES)
            for end in ENDS
        }
        told = row["kind"] in RANKED
        # The interval's ends: the slowest loader with the fastest devices, and the reverse.
        for end, demand in zip(ENDS, ("", "_high", "_low"), strict=True):
            each = row[f"{_DEMAND}{demand}"] / row["devices"]
            found[f"fed{end}"] = math.floor(row[f"{_SUPPLY}{end}"] / each) if told else math.nan
        found["workers"] = last["data"].get("loader_workers")
        found["cores"] = loader_advice.cores(last)
        enough = row[f"{_SUPPLY}_low"] >= row[f"{_DEMAND}_high"]
        found["change"] = NOTHING if enough else loader_advice.first_change(last)
        rows.append(found)
    return pd.DataFrame(rows)


def limited_by(entries: Sequence[Entry]) -> str:
    """``compiling 68 %``; ``data 20 %, each other 9 %``; ``compute``; ``not measurable``.

    A wait is named if every one of these repeats shows it. Shares of data and each other are of an
    epoch, that of compiling is of the whole training.
    """
    each = [_of(entry) for entry in entries]
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


def _of(entry: Entry) -> dict[str, float]:
    """The waits of one run that may be named."""
    waits = attribution.telling(entry.content["attribution"])
    first = attribution.compiling(entry.content)
    return waits | ({COMPILING: first} if first > attribution.LITTLE else {})


def table(compared: Comparison) -> Table:
    """What each label's last run on the most devices waited for, and what its loader delivers."""
    loaders = supply(compared)
    groups, rows = repeats(compared.finished), []
    found, count = widest_first(compared)
    most = found["devices"].max()
    for row in found.head(count).to_dict("records"):
        entries = groups[row["label"], row["devices"]]
        is_row = (loaders["label"] == row["label"]) & (loaders["devices"] == row["devices"])
        loader = loaders[is_row].iloc[0]
        times = loader[_SUPPLY] / loader[_DEMAND] if loader[_DEMAND] > 0 else None
        change = "" if loader["change"] == NOTHING else loader["change"]
        cells: dict[Head, Cell | str] = {
            f"for {WAITS[wait]}": cell(entries[-1], wait) for wait in attribution.WAITS
        }
        compiled = [attribution.compiling(entry.content) for entry in entries]
        cells |= {
            COMPILING: Cell(median(compiled), share, min(compiled), max(compiled)),
            "loader / devices": Cell(times, lambda value: f"x {short_number(value)}"),
            "change first": change or ABSENT,
        }
        rows.append((of_row(row, most), cells))
    return tables.table(
        "What limits training",
        tables.on(most),
        rows,
        note="Waits are shares of an epoch, with 95 % intervals, measured by rounds that leave out "
        "loading and then the all-reduce; compiling is a share of the whole training. Loader / "
        "devices is the loader's rate alone, divided by that of training on synthetic data.",
    )


def cell(entry: Entry, name: str) -> Cell:
    """``13 % (10 to 15)`` of an epoch; in words where there is no such figure."""
    found = entry.content["attribution"]
    if name not in found["shares"]:
        return Cell(ABSENT)
    if (said := attribution.in_words(found, name)) in (attribution.NOISY, attribution.NO_WAIT):
        return Cell(said)
    return Cell(found["shares"][name], share, *found["intervals"][name])
