"""Charts of what the machine did: utilisation, where the time went, energy."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gpumon
from gpumon.errors import MonitorError
from helpers.results import device_waits
from helpers.results.charts.style import (
    colour_of,
    cycle,
    faded,
    name_rows,
    safe,
)
from helpers.results.comparison import Comparison, widest
from helpers.results.comparison_tables import short_number
from helpers.results.repeated_runs import summarise
from helpers.training.figure_style import (
    FAINT,
    SHARES,
    WIDTH,
    Chart,
    figure_of,
    legend_below,
    plain_axes,
    styled,
)


@styled
def utilisation(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Utilisation while training and validating, one lane a framework, all on the same axes.

    Each framework on its most devices. The mean over the GPUs, with the range from the least to
    the most used one; the host's CPU where there is no GPU. Time counts from the start of the
    first epoch.
    """
    lanes = []
    for entry in widest(compared.entries):
        try:
            trace = gpumon.read(entry.folder / "trace")
            lanes.append((entry, trace.frame(), trace.phases()))
        except MonitorError:
            continue  # a run without a trace has no lane; remarks() says what is missing
    if not lanes:
        return None
    figure = Chart(figsize=(width, 0.9 + 1.25 * len(lanes)), layout="constrained")
    grid = figure.subplots(len(lanes), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    longest = 0.0
    for axes, (entry, frame, phases) in zip(grid, lanes, strict=True):
        start, end = _window(frame, phases)
        longest = max(longest, end - start)
        shown = frame.loc[(frame.index >= start) & (frame.index <= end)]
        columns = [c for c in shown.columns if c.startswith("gpu") and "/utilisation (%)" in c]
        columns = [c for c in columns if "memory" not in c]
        what = f"{len(columns)} GPU(s)" if columns else "host CPU"
        values = shown[columns or ["host/cpu (%)"]].astype(float)
        seconds, colour = values.index.to_numpy() - start, colour_of(entry.label)
        mean = values.mean(axis=1)
        axes.fill_between(seconds, mean, color=faded(colour, 0.25), lw=0)
        if len(columns) > 1:
            low, high = values.min(axis=1), values.max(axis=1)
            axes.fill_between(seconds, low, high, color=faded(colour, 0.5), lw=0)
        axes.plot(seconds, mean, color=colour, lw=1.2)
        _bands(axes, phases, start, end)
        average = f"mean {mean.mean():.0f} %" if mean.notna().any() else "no readings"
        axes.set_title(f"{safe(entry.run)}: {what}, {average}", loc="left")
        plain_axes(axes, grid="y")
        axes.set_ylabel("%")
    grid[0].set_ylim(0, 105)
    grid[0].set_xlim(0, longest)
    grid[-1].set_xlabel("seconds since the first epoch began; grey bands: validation")
    return figure


@styled
def attribution(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Where the time went: the shares of an epoch that were no compute, one row a run.

    Points with the least and the most of the rounds. A share can lie below zero, by as much as
    the rounds scatter; a run whose measurement is invalid says so.
    """
    numbers = device_waits.numbers(compared)
    if numbers.empty:
        return None
    names = [name for name in device_waits.shares_of(numbers) if name != "compute"]
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
        if pd.notna(row[device_waits.INVALID]):
            axes.annotate(
                f"{device_waits.INVALID}: its sentence says why",
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
    """Images per joule of every run whose GPUs told their energy; None where none did."""
    numbers = summarise(compared).dropna(subset=["images_per_joule"])
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


def _window(frame: pd.DataFrame, phases: pd.DataFrame) -> tuple[float, float]:
    """From the start of the first epoch to the end of the last, in the trace's seconds."""
    epochs = phases[phases["phase"].isin(["train", "validate"])]
    if epochs.empty:
        return float(frame.index.min()), float(frame.index.max())
    return float(epochs["start (s)"].min()), float(epochs["end (s)"].max())


def _bands(axes: Axes, phases: pd.DataFrame, start: float, end: float) -> None:
    validated = phases[phases["phase"] == "validate"].sort_values("start (s)")
    last = start
    for begin, finish in zip(validated["start (s)"], validated["end (s)"], strict=True):
        # Replicas mark the same validation each for itself: shade it once.
        begin, finish = max(begin, last), min(finish, end)
        if finish > begin:
            axes.axvspan(begin - start, finish - start, color=FAINT, alpha=0.25, lw=0)
            last = finish
