"""Show what the devices of several runs waited for, as far as it was measured."""

from statistics import median
from typing import Any

import pandas as pd

from helpers.results import tables
from helpers.results.comparison import Comparison, Entry, latest_of_each, widest
from helpers.results.tables import ABSENT, Cell, Table, of_run, share
from helpers.training import attribution

INVALID = "invalid"


def numbers(compared: Comparison) -> pd.DataFrame:
    """Rows runs; of each share of an epoch (0 to 1) its value, and its ends where it has some.

    Columns: the shares, ``<share>_low``, ``<share>_high`` (the minimum and maximum of the rounds),
    invalid (why no share can be believed, else missing). A share may be below zero, or NaN.
    """
    rows = {}
    for entry in latest_of_each(compared.finished):
        found = entry.content["attribution"]
        row: dict[str, Any] = dict(found["shares"])
        for name, (low, high) in found["intervals"].items():
            row |= {f"{name}_low": low, f"{name}_high": high}
        rows[entry.run] = row | {INVALID: found["invalid"]}
    frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("run")
    shares = [name for name in frame.columns if name != INVALID]
    return frame.astype(dict.fromkeys(shares, float))


def table(compared: Comparison) -> Table:
    """The same in percent of an epoch, with minimum and maximum in brackets."""
    found = numbers(compared)
    names = {entry.run: of_run(entry, timed=False) for entry in compared.finished}
    rows = [
        (names[str(run)], {name: _cell(row, name) for name in shares_of(found)})
        for run, row in found.iterrows()
    ]
    return tables.table(
        "Shares of an epoch",
        "run",
        rows,
        note="Alternating rounds leave out loading and then the all-reduce to measure the shares; "
        "brackets hold the minimum and maximum. A share below zero means no measurable wait.",
    )


def _cell(row: pd.Series, name: str) -> Cell:
    if pd.isna(row[name]):
        return Cell(INVALID if pd.notna(row[INVALID]) else ABSENT)
    return Cell(row[name], share, row.get(f"{name}_low"), row.get(f"{name}_high"))


def sentences(compared: Comparison) -> list[str]:
    """The attribution in words, a line each run that waited or whose measurement is invalid."""
    found = [(entry, entry.content["attribution"]) for entry in latest_of_each(compared.finished)]
    return [
        f"{entry.run}: {read['sentence']}"
        for entry, read in found
        if read["invalid"] or attribution.telling(read, entry.content)
    ]


def shares_of(found: pd.DataFrame) -> list[str]:
    """The names of the shares in :func:`numbers`."""
    return [
        name for name in found.columns if name != INVALID and not name.endswith(("_low", "_high"))
    ]


def telling(compared: Comparison) -> dict[str, list[tuple[Entry, float]]]:
    """For each wait, the runs (each label's widest) that show it, with its share of an epoch.

    All repeats of a run have to show the wait; the last repeat is returned. Waits in more than half
    of the runs come first, ordered by size.
    """
    shown: dict[str, list[tuple[Entry, float]]] = {}
    runs = _repeats(compared)
    for repeats in runs:
        each = [
            attribution.telling(entry.content["attribution"], entry.content) for entry in repeats
        ]
        for wait, found in each[-1].items():
            if all(wait in one for one in each):
                shown.setdefault(wait, []).append((repeats[-1], found))

    def weight(wait: str) -> tuple[bool, float]:
        return 2 * len(shown[wait]) > len(runs), median(found for _, found in shown[wait])

    return {wait: shown[wait] for wait in sorted(shown, key=weight, reverse=True)}


def bounded(compared: Comparison) -> list[Entry]:
    """The runs, of each label's widest, whose rounds leave room for little waiting of any kind.

    Of repeats every one has to.
    """
    return [
        repeats[-1]
        for repeats in _repeats(compared)
        if all(attribution.leaves_little(e.content["attribution"]) for e in repeats)
    ]


def invalid(compared: Comparison) -> list[Entry]:
    """The runs, of each label's widest, of which any repeat's measurement contradicts itself."""
    return [
        repeats[-1]
        for repeats in _repeats(compared)
        if any(e.content["attribution"]["invalid"] for e in repeats)
    ]


def _repeats(compared: Comparison) -> list[list[Entry]]:
    """The finished runs of each label on the most devices, the last one last."""
    return [
        [e for e in compared.finished if (e.label, e.devices) == (last.label, last.devices)]
        for last in widest(compared.finished)
    ]


def percent(entry: Entry, wait: str) -> Cell:
    """``13 % (10 to 15)`` of an epoch."""
    found = entry.content["attribution"]
    return Cell(found["shares"][wait], share, *found["intervals"][wait])
