"""Draw the charts of scaling: speed, the factors of a speed-up, a step's parts, cost."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from helpers.results import published
from helpers.results.charts.style import colour_of, faded, line_of, name_rows
from helpers.results.comparison import Comparison
from helpers.results.comparison_tables import short_number, time_text
from helpers.results.scaling import cost, speed, speedup_factors, step_parts
from helpers.training.figure_style import (
    FAINT,
    NARROW,
    SHARES,
    WIDTH,
    figure_of,
    heading,
    legend_below,
    panels,
    safe,
    small_multiples,
    styled,
)

MANY = 8
"""Lines in one chart; more of them go into a panel for each framework."""
HARDWARE, LEARNING = SHARES[0], SHARES[3]


@styled
def scaling(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Throughput against devices with each series' ideal line, and parallel efficiency.

    None if all runs are on the same number of GPUs. Lines span the minimum and maximum of the
    repeats. Published efficiencies are marked crosses, shown with runs of the article's network or
    of ChainerMN's study.
    """
    if not speed.several(compared):
        return None
    numbers = speed.numbers(compared)
    labels = list(dict.fromkeys(numbers["label"]))
    if len(labels) > MANY:
        return _throughput_by_framework(numbers, labels, width)
    figure, (left, right) = panels(2, width, 3.8)
    for label in labels:
        of_label = numbers[numbers["label"] == label]
        _line(left, of_label, "images_per_second", 1, label=safe(label), **line_of(label, labels))
        _line(right, of_label, "efficiency", 100, **line_of(label, labels))
        _ideal(left, of_label)
    comparable = published.belong(compared)
    far = published.points(compared)
    if comparable:
        _published_efficiency(right)
    for point in far:
        right.plot(point.devices, 100 * point.efficiency, "x", color=FAINT, ms=6)
    heading(left, "Images per second; dotted: ideal")
    heading(right, "Parallel efficiency, %")
    right.axhline(100, color=FAINT, lw=1, ls=":")
    right.set_ylim(0, max(110.0, right.get_ylim()[1]))
    if comparable:
        left.plot([], [], color=FAINT, lw=1, ls="--", marker="x", ms=5, label=published.NAME)
    if far:
        left.plot([], [], "x", color=FAINT, ms=6, label=published.SCALING_NAME)
    counts = sorted(numbers["devices"].unique())
    _device_axis(left, counts, both=True)
    theirs = (1, 4) if comparable else [point.devices for point in far]
    _device_axis(right, sorted({*counts, *theirs}))
    legend_below(figure, left)
    return figure


def _throughput_by_framework(numbers: pd.DataFrame, labels: Sequence[str], width: float) -> Figure:
    families = dict.fromkeys(colour_of(label) for label in labels)
    figure, grid = small_multiples(len(families), width, 2.6)
    for axes, family in zip(grid, families, strict=True):
        own = [label for label in labels if colour_of(label) == family]
        for label in own:
            of_label = numbers[numbers["label"] == label]
            style = line_of(label, own) | {"ms": 4}
            _line(axes, of_label, "images_per_second", 1, label=safe(label), **style)
            _ideal(axes, of_label)
        heading(axes, safe(own[0], 24))
        axes.legend(frameon=False, fontsize=7)
    for axes in grid:  # they share their axes, so only when all is in them
        _device_axis(axes, sorted(numbers["devices"].unique()), both=True)
    figure.supylabel("images per second; dotted: ideal", fontsize=9, color=FAINT)
    return figure


def _line(axes: Axes, numbers: pd.DataFrame, figure: str, factor: float, **style: Any) -> None:
    """A line through the medians, and at each from the least to the most."""
    axes.plot(numbers["devices"], factor * numbers[figure], lw=2, **style)
    for _, row in numbers.iterrows():
        ends = [factor * row[f"{figure}_low"], factor * row[f"{figure}_high"]]
        axes.plot([row["devices"]] * 2, ends, color=style["color"], lw=4, alpha=0.35)


def _ideal(axes: Axes, of_label: pd.DataFrame) -> None:
    colour = colour_of(str(of_label["label"].iloc[0]))
    axes.plot(of_label["devices"], of_label["ideal"], color=colour, lw=1, ls=(0, (1, 2)), alpha=0.9)


def _published_efficiency(axes: Axes) -> None:
    seconds = published.results().pivot(index="label", columns="devices", values="seconds")
    efficiencies = (100 * seconds[1] / seconds[4] / 4).dropna()  # some ran on four GPUs only
    for label, efficiency in efficiencies.items():
        colour = colour_of(str(label))
        axes.plot([1, 4], [100, efficiency], color=colour, lw=0.9, ls="--", alpha=0.6)
        axes.plot([4], [efficiency], color=colour, marker="x", ms=5, ls="none")


def _device_axis(axes: Axes, counts: Sequence[int], *, both: bool = False) -> None:
    """Numbers of devices as ticks, on logarithmic axes where they are far apart."""
    if max(counts) > 8 * min(counts):
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        if both:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    elif both:
        axes.set_ylim(bottom=0)
    axes.set_xticks(list(counts), [str(count) for count in counts])
    axes.set_xlabel("devices")


@styled
def factors(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """The split of the speed-up to the target, a panel a series, a column a number of devices.

    On a logarithmic axis factors are lengths: up by the hardware efficiency, down by the
    statistical one, and what is left is how many times as soon the target came. None where no
    series went there on several numbers of devices.
    """
    found = speedup_factors.numbers(compared)
    if found.empty or not speedup_factors.several(compared):
        return None
    own = [(key, rows) for key, rows in found.groupby(["series", "kind"], sort=False)]
    own = [(key, rows) for key, rows in own if (rows["devices"] > rows["base"]).any()]
    figure, grid = small_multiples(len(own), width, 3.0 if len(own) > 1 else 3.4)
    counts = sorted({count for _, rows in own for count in rows["devices"]})
    values = [found[name].max() for name in ("hardware_efficiency", "speed_up", "rate_factor")]
    values += [rows["devices"].max() / rows["base"].min() for _, rows in own]
    most = max((value for value in values if pd.notna(value)), default=1.0)
    low = found[["speed_up", "hardware_efficiency"]].min().min()
    for axes, ((series, kind), rows) in zip(grid, own, strict=True):
        axes.set_yscale("log", base=2)
        axes.set_ylim(min(1.0, low if pd.notna(low) else 1.0) / 1.35, most * 1.6)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.axhline(1, color=FAINT, lw=1)
        places = {count: place for place, count in enumerate(counts)}
        for _, row in rows.iterrows():
            _column(axes, places[row["devices"]], row)
        axes.set_xlim(-0.6, len(counts) - 0.4)
        axes.set_xticks(range(len(counts)), [str(count) for count in counts])
        axes.set_xlabel(_axis_name(kind))
        axes.set_title(safe(str(series), 30), loc="left", fontweight="bold")
    first = grid[0]
    first.plot(
        [],
        [],
        color=HARDWARE,
        lw=7,
        alpha=0.75,
        label="hardware efficiency: images a second, times",
    )
    first.plot(
        [],
        [],
        color=LEARNING,
        lw=7,
        alpha=0.75,
        label="statistical efficiency: images needed, times",
    )
    first.plot([], [], color=FAINT, marker="D", ms=6, ls="none", label="left: times as soon")
    first.plot([], [], color=FAINT, marker="_", ms=12, ls="none", label="ideal")
    metric, wanted = compared.metric, float(found["target"].iloc[0])
    name = "times" if width < NARROW else "times, on a logarithmic axis"
    figure.supylabel(f"{name}, to {metric.short} {metric.target(wanted)}", fontsize=9, color=FAINT)
    legend_below(figure, first)
    return figure


def _axis_name(kind: str) -> str:
    return {
        "gpu": "GPUs",
        "cpu": "CPU devices",
        "shared cores": "CPU devices that share cores",
        "shared": "replicas that share GPUs",
        "simulated": "GPUs of simulated nodes",
    }[kind]


def _column(axes: Axes, place: int, row: pd.Series) -> None:
    """Draw one number of devices: up by the hardware efficiency, down by the statistical one."""
    if pd.isna(row["base"]) or row["devices"] < row["base"]:
        axes.annotate("not\nreached", (place, 1), ha="center", va="bottom", fontsize=7.5)
        return
    axes.plot(place, row["devices"] / row["base"], marker="_", ms=16, mew=1.5, color=FAINT)
    if row["reached"] < row["runs"]:
        _bar(axes, place - 0.17, 1.0, row["rate_factor"], HARDWARE)
        axes.annotate("not\nreached", (place + 0.05, 1.08), fontsize=7.5, va="bottom")
        return
    _bar(axes, place - 0.17, 1.0, row["hardware_efficiency"], HARDWARE)
    _bar(axes, place + 0.17, row["hardware_efficiency"], row["speed_up"], LEARNING)
    ends = [row["speed_up_low"], row["speed_up_high"]]
    ink = colour_of(str(row["label"]))
    axes.plot([place + 0.17] * 2, ends, lw=1.5, color=ink)
    axes.plot(place + 0.17, row["speed_up"], marker="D", ms=6, color=ink)
    if row["devices"] != row["base"]:
        axes.annotate(
            f"{row['speed_up']:.1f}",
            (place + 0.17, row["speed_up"]),
            xytext=(0, -7),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=8,
        )


def _bar(axes: Axes, place: float, one: float, other: float, colour: str) -> None:
    if pd.notna(one) and pd.notna(other):
        low, high = sorted((one, other))
        axes.bar(place, high - low, 0.3, bottom=low, color=faded(colour, 0.75))


@styled
def steps(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Where a step goes: a bar a run, its parts behind each other, by measurement or by ablation.

    The line under a part is from the lowest to the highest rank, or round.
    """
    found = step_parts.numbers(compared)
    if found.empty:
        return None
    runs = list(dict.fromkeys(found["run"]))
    figure, axes = figure_of(1.4 + 0.42 * len(runs), width)
    colours = dict(zip(step_parts.PARTS, (SHARES[1], SHARES[0], SHARES[3], SHARES[4]), strict=True))
    names = []
    for place, run in enumerate(runs):
        group, left = found[found["run"] == run], 0.0
        measured = group["how"].iloc[0] == step_parts.MEASURED
        for _, row in group.iterrows():
            value = 1000 * max(0.0, row["seconds"])
            colour = colours[row["part"]]
            axes.barh(place, value, 0.55, left=left, color=faded(colour, 0.85 if measured else 0.5))
            ends = [left + 1000 * max(0.0, row[end]) for end in ("low", "high")]
            axes.plot(ends, [place + 0.36] * 2, color=colour, lw=2, solid_capstyle="butt")
            left += value
        names.append(safe(run) if measured else f"{safe(run)}\n{step_parts.BY_ABLATION}")
    for part, colour in colours.items():
        if (found["part"] == part).any():
            axes.plot([], [], color=colour, lw=7, alpha=0.85, label=part)
    name_rows(axes, names, above=0.6, below=0.7)
    axes.set_xlim(left=0)
    axes.set_xlabel("ms a step; the thin line: lowest to highest over ranks, or rounds")
    legend_below(figure, axes)
    return figure


@styled
def pareto(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Time against cost, to the target: nothing that ranks is better in both than the line.

    Cost is money at the prices that were given, else energy. None where neither is known.
    """
    points = cost.pareto(compared)
    if points.empty:
        return None
    figure, axes = figure_of(4.0, width)
    labels = list(dict.fromkeys(points["label"]))
    for label in labels:
        own = points[points["label"] == label]
        style = line_of(label, labels) | {"ls": "none", "ms": 7}
        axes.plot(own["seconds"], own["cost"], label=safe(label), **style)
        for _, row in own.iterrows():
            axes.annotate(
                str(row["devices"]),
                (row["seconds"], row["cost"]),
                xytext=(6, 4),
                textcoords="offset points",
                fontsize=8,
            )
    front = points[points["front"]].sort_values("seconds")
    axes.plot(front["seconds"], front["cost"], color=FAINT, lw=1.2, ls="--", zorder=0)
    for axis, text in ((axes.xaxis, time_text), (axes.yaxis, short_number)):
        axis.set_major_formatter(FuncFormatter(lambda value, _, text=text: text(value)))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis, text in ((axes.xaxis, time_text), (axes.yaxis, short_number)):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _, text=text: text(value)))
        axis.set_minor_formatter(NullFormatter())
    metric, wanted = compared.metric, speedup_factors.target(compared) or 0.0
    what = "energy, Wh" if points["what"].iloc[0] == "energy" else f"cost{cost.currency(compared)}"
    axes.set_xlabel(f"time to {metric.short} {metric.target(wanted)}; numbers: devices")
    axes.set_ylabel(what)
    axes.grid(axis="y", alpha=0.5)
    legend_below(figure, axes)
    return figure
