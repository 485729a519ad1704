"""Draw the charts of utilisation, waiting times and energy."""

from bisect import bisect_right
from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

import gpumon
from gpumon.errors import MonitorError
from helpers.launch import samplers
from helpers.results import wait_causes
from helpers.results.charts.style import (
    MOST_ROWS,
    colour_of,
    cycle,
    faded,
    few,
    name_rows,
)
from helpers.results.comparison import Comparison, widest
from helpers.results.comparison_tables import short_number
from helpers.results.repeated_runs import summarise
from helpers.training.figure_style import (
    FAINT,
    SHARES,
    WIDTH,
    figure_of,
    legend_below,
    safe,
    styled,
)

EPOCHS = ("train", "validate")


def utilisation(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Utilisation while training and validating: gpumon's chart of several runs, a lane each.

    Each framework on its most devices. Time counts from the start of the first epoch.
    """
    lanes, _ = traces(compared)
    if not lanes:
        return None
    trained = any(mark.name == EPOCHS[0] for run in lanes.values() for mark in run.recording.marks)
    return gpumon.compare(lanes, align=EPOCHS[0] if trained else None, width=width)


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
    count = bisect_right(whole.times, end)
    cut = replace(
        whole,
        times=whole.times[:count],
        columns=[column[:count] for column in whole.columns],
        ranges=whole.ranges and [(low[:count], high[:count]) for low, high in whole.ranges],
        events=[event for event in whole.events if event["t"] <= end],
        marks=[mark for mark in whole.marks if mark.start < end],
        end=end,
    )
    return gpumon.Trace(cut)


@styled
def attribution(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Where the time went: the shares of an epoch that were no compute, one row a run.

    Points with the minimum and maximum of the rounds. A share can lie below zero, by as much as
    the rounds scatter; a run whose measurement is invalid says so.
    """
    numbers = wait_causes.numbers(compared)
    if numbers.empty:
        return None
    if len(numbers) > MOST_ROWS:
        numbers = numbers.loc[[entry.run for entry in widest(compared.finished)]]
    names = [name for name in wait_causes.shares_of(numbers) if name != "compute"]
    figure, axes = figure_of(1.3 + 0.55 * len(numbers), width)
    axes.axvline(0, color=FAINT, lw=1)
    looks = list(zip(names, cycle(_SHAPES, len(names)), cycle(_INKS, len(names)), strict=True))
    for place, (_, row) in enumerate(numbers.iterrows()):
        for number, (name, shape, colour) in enumerate(looks):
            if pd.isna(row[name]):
                continue
            y = place + (number - (len(names) - 1) / 2) * 0.22
            ends = [100 * row.get(f"{name}{end}", row[name]) for end in ("_low", "_high")]
            axes.plot(ends, [y, y], color=colour, lw=2, solid_capstyle="butt")
            axes.plot(100 * row[name], y, marker=shape, ms=6, color=colour, ls="none")
        if pd.notna(row[wait_causes.INVALID]):
            axes.annotate(
                f"{wait_causes.INVALID}: its sentence says why",
                (0, place),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=FAINT,
            )
    for name, shape, colour in looks:
        axes.plot([], [], marker=shape, ms=6, color=colour, ls="none", label=safe(name))
    name_rows(axes, [safe(str(name)) for name in numbers.index], above=0.6, below=0.6)
    axes.set_xlabel("% of an epoch; the rest is compute")
    legend_below(figure, axes)
    return figure


_SHAPES = ("o", "s", "D", "^")
_INKS = (SHARES[0], *SHARES[3:])  # those that are seen as points on light and on dark


@styled
def energy(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Images per joule of every run whose GPUs report their energy; None if no GPU does."""
    numbers = few(summarise(compared).dropna(subset=["images_per_joule"]))
    if numbers.empty:
        return None
    figure, axes = figure_of(1.0 + 0.45 * len(numbers), width)
    names = [f"{row['label']}, {row['devices']}x" for _, row in numbers.iterrows()]
    for place, (_, row) in enumerate(numbers.iterrows()):
        value = row["images_per_joule"]
        axes.barh(place, value, 0.6, color=faded(colour_of(row["label"]), 0.85))
        axes.annotate(
            f"{value:.3g} images/J, {short_number(row['joules'] / 1000)} kJ in total",
            (value, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    name_rows(axes, [safe(name) for name in names])
    axes.set_xlim(0, 1.6 * float(numbers["images_per_joule"].max()))
    axes.set_xlabel("images trained per joule of the GPUs")
    return figure
