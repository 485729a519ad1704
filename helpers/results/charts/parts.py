"""Draw the charts of utilisation, of waiting times, and of the parts of a step."""

from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

import gpumon
from gpumon.errors import MonitorError
from helpers.launch import samplers
from helpers.results import wait_causes
from helpers.results.charts.style import MOST_ROWS, Chart, described, key, name_rows, note
from helpers.results.comparison import Comparison, widest
from helpers.results.tables import Table
from helpers.training.attribution import NOISY
from helpers.training.figure_style import (
    FAINT,
    SHARES,
    figure_of,
    legend_below,
    safe,
)

EPOCHS = ("train", "validate")
_SHAPES = ("o", "s", "D", "^")
_INKS = (SHARES[0], *SHARES[3:])  # those that are seen as points on light and on dark


def traces(compared: Comparison) -> tuple[dict[str, gpumon.Trace], list[str]]:
    """Each label's trace on its most devices, by its name; and the runs that have none.

    It ends with training, so that a longer lane is a slower run. It is the last run's, else that of
    the last repeat with a trace, which its name says then.
    """
    found, without = {}, []
    for last in widest(compared.entries):
        repeats = [
            entry
            for entry in compared.entries
            if (entry.label, entry.devices) == (last.label, last.devices)
            and (entry is last or entry.variant)
        ]
        for entry in reversed(repeats):
            try:
                trace = samplers.read(entry.folder)
            except MonitorError:
                continue
            name = entry.label if entry is last else f"{entry.label} {entry.variant}"
            found[name] = _training(trace)
            break
        else:
            without.append(last.run)
    return found, without


def _training(trace: gpumon.Trace) -> gpumon.Trace:
    """The trace until its last epoch ends; the whole trace where no epoch was marked."""
    whole = trace.recording
    end = max((mark.end for mark in whole.marks if mark.name in EPOCHS), default=whole.end)
    cut = replace(
        whole,
        frame=whole.frame.loc[:end],
        events=[event for event in whole.events if event["t"] <= end],
        marks=[mark for mark in whole.marks if mark.start < end],
        end=end,
    )
    return gpumon.Trace(cut)


def _read_out(table: Table) -> list[str]:
    """A table's rows, for a chart's description."""
    return [
        f"{name} "
        + ", ".join(f"{head} {cell}" for head, cell in zip(table.columns, cells, strict=True))
        for name, cells in table.rows
    ]


def attribution(compared: Comparison) -> Chart | None:
    """Where the time went: the shares of an epoch that were no compute, one row a run.

    Points with 95 % intervals. What is too noisy to tell is named in words.
    """
    numbers = wait_causes.numbers(compared)
    if numbers.empty:
        return None
    if len(numbers) > MOST_ROWS:
        numbers = numbers.loc[[entry.run for entry in widest(compared.finished)]]
    return Chart(
        "attribution",
        "Where the time went",
        described(
            "Shares of an epoch with 95 % intervals, as in the table",
            _read_out(wait_causes.table(compared)),
        ),
        lambda width: _attribution(numbers, width),
    )


def _attribution(numbers: pd.DataFrame, width: float) -> Figure:
    names = [name for name in wait_causes.shares_of(numbers) if name != "compute"]
    figure, axes = figure_of(1.3 + 0.55 * len(numbers), width)
    axes.axvline(0, color=FAINT, lw=1)
    looks = [
        (name, _SHAPES[i % len(_SHAPES)], _INKS[i % len(_INKS)]) for i, name in enumerate(names)
    ]
    for place, (_, row) in enumerate(numbers.iterrows()):
        for number, (name, shape, colour) in enumerate(looks):
            if pd.isna(row[name]):
                continue
            y = place + (number - (len(names) - 1) / 2) * 0.22
            ends = [100 * row.get(f"{name}{end}", row[name]) for end in ("_low", "_high")]
            axes.plot(ends, [y, y], color=colour, lw=2, solid_capstyle="butt")
            axes.plot(100 * row[name], y, marker=shape, ms=6, color=colour, ls="none")
        if noisy := [name for name in names if pd.isna(row[name])]:
            said = f"{', '.join(noisy)}: {NOISY}"
            note(axes, safe(said), (0, place), (8, 0), color=FAINT)
    for name, shape, colour in looks:
        key(axes, safe(name), marker=shape, ms=6, color=colour, ls="none")
    name_rows(axes, [safe(str(name)) for name in numbers.index], above=0.6, below=0.6)
    axes.set_xlabel("% of an epoch; the rest is compute")
    legend_below(figure, axes)
    return figure
