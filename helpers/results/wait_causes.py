"""Show what the devices of several runs waited for, as far as it was measured."""

import math
from statistics import median

import pandas as pd

from helpers.results import tables
from helpers.results.comparison import Comparison, Entry, latest_of_each, widest
from helpers.results.tables import Cell, Table, of_run, share
from helpers.training import attribution

COMPILING = "compiling"


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


def table(compared: Comparison) -> Table:
    """The same in percent, in words where there is no such figure."""
    rows = []
    for entry in latest_of_each(compared.finished):
        names = [*entry.content["attribution"]["shares"], COMPILING]
        rows.append((of_run(entry, timed=False), {name: cell(entry, name) for name in names}))
    return tables.table(
        "Shares of an epoch",
        "run",
        rows,
        note="Alternating rounds leave out loading and then the all-reduce to measure the shares; "
        "brackets hold 95 % intervals. A share whose interval is wider than 20 points, or "
        "impossible, is too noisy to tell. Compiling is the part of the first step that a typical "
        "step does not have, as a share of the whole training.",
    )


def cell(entry: Entry, name: str) -> Cell:
    """``13 % (10 to 15)`` of an epoch; ``68 %`` of the training for compiling."""
    if name == COMPILING:
        return Cell(attribution.compiling(entry.content), share)
    found = entry.content["attribution"]
    if (said := attribution.in_words(found, name)) in (attribution.NOISY, attribution.NO_WAIT):
        return Cell(said)
    return Cell(found["shares"][name], share, *found["intervals"][name])


def sentences(compared: Comparison) -> list[str]:
    """The attribution in words, a line each run that waited or may have."""
    return [
        f"{entry.run}: {entry.content['attribution']['sentence']}"
        for entry in latest_of_each(compared.finished)
        if _of(entry) or not attribution.leaves_little(entry.content["attribution"])
    ]


def shares_of(found: pd.DataFrame) -> list[str]:
    """The names of the shares of an epoch in :func:`numbers`."""
    return [name for name in found.columns if f"{name}_low" in found.columns]


def telling(compared: Comparison) -> dict[str, list[tuple[Entry, float]]]:
    """For each wait, the runs (each label's widest) that show it, with its share.

    All repeats of a run have to show the wait; the last repeat is returned. Waits in more than half
    of the runs come first, ordered by size.
    """
    shown: dict[str, list[tuple[Entry, float]]] = {}
    runs = _repeats(compared)
    for repeats in runs:
        each = [_of(entry) for entry in repeats]
        for wait, found in each[-1].items():
            if all(wait in one for one in each):
                shown.setdefault(wait, []).append((repeats[-1], found))

    def weight(wait: str) -> tuple[bool, float]:
        return 2 * len(shown[wait]) > len(runs), median(found for _, found in shown[wait])

    return {wait: shown[wait] for wait in sorted(shown, key=weight, reverse=True)}


def _of(entry: Entry) -> dict[str, float]:
    """The waits of one run that may be named."""
    waits = attribution.telling(entry.content["attribution"])
    first = attribution.compiling(entry.content)
    return waits | ({COMPILING: first} if first > attribution.LITTLE else {})


def bounded(compared: Comparison) -> list[Entry]:
    """The runs, of each label's widest, whose rounds leave room for little waiting of any kind.

    Of repeats every one has to.
    """
    return [
        repeats[-1]
        for repeats in _repeats(compared)
        if all(attribution.leaves_little(e.content["attribution"]) for e in repeats)
    ]


def noisy(compared: Comparison) -> list[Entry]:
    """The runs, of each label's widest, of which a wait in any repeat is too noisy to tell."""
    return [
        repeats[-1]
        for repeats in _repeats(compared)
        if not all(
            attribution.is_measured(entry.content["attribution"], wait)
            for entry in repeats
            for wait in attribution.WAITS
            if wait in entry.content["attribution"]["shares"]
        )
    ]


def _repeats(compared: Comparison) -> list[list[Entry]]:
    """The finished runs of each label on the most devices, the last one last."""
    return [
        [e for e in compared.finished if (e.label, e.devices) == (last.label, last.devices)]
        for last in widest(compared.finished)
    ]
