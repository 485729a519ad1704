"""Draw the charts of scaling: speed, the factors of a speed-up."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from helpers.record.tasks import Metric
from helpers.results import published
from helpers.results.charts.style import (
    Chart,
    colour_of,
    described,
    faded,
    key,
    line_of,
    note,
    on_devices,
)
from helpers.results.comparability import RANKED
from helpers.results.comparison import Comparison
from helpers.results.scaling import speed, speedup_factors
from helpers.results.tables import share
from helpers.training.figure_style import (
    FAINT,
    NARROW,
    SHARES,
    heading,
    legend_below,
    panels,
    safe,
    small_multiples,
)

MANY = 8
"""Lines in one chart; more of them go into a panel for each framework."""
HARDWARE, LEARNING = SHARES[0], SHARES[3]
_AXES = {
    "gpu": "GPUs",
    "cpu": "CPU devices",
    "shared cores": "CPU devices that share cores",
    "simulated": "GPUs of simulated nodes",
}
"""By kind of devices, the name of an axis of their numbers."""


def scaling(compared: Comparison) -> Chart | None:
    """Throughput against devices with each series' ideal line, and parallel efficiency.

    None if all runs are on the same number of GPUs. Lines span the minimum and maximum of the
    repeats. Published efficiencies are marked crosses, shown with runs of the article's network or
    of ChainerMN's study.
    """
    if not speed.several(compared):
        return None
    numbers = speed.numbers(compared)
    alt = described(
        "Lines of throughput and parallel efficiency against devices",
        (
            f"{on_devices(row)} {share(row['efficiency'])}"
            for _, row in speed.beyond_base(numbers).iterrows()
        ),
    )
    return Chart("scaling", "Throughput", alt, lambda width: _scaling(compared, numbers, width))


def _scaling(compared: Comparison, numbers: pd.DataFrame, width: float) -> Figure:
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
        key(left, published.NAME, color=FAINT, lw=1, ls="--", marker="x", ms=5)
    if far:
        key(left, published.SCALING_NAME, ls="none", marker="x", color=FAINT, ms=6)
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


def factors(compared: Comparison) -> Chart | None:
    """The split of the speed-up to the target, a panel a series, a column a number of devices.

    On a logarithmic axis factors are lengths: up by the hardware efficiency, down by the
    statistical one, and what is left is how many times as soon the target came. None where no
    series went there on several numbers of devices.
    """
    found = speedup_factors.numbers(compared)
    if found.empty or not speedup_factors.several(compared):
        return None
    shared = (
        " If devices share CPU cores or a machine, only their statistical efficiency applies "
        "to other hardware."
    )
    return Chart(
        "factors",
        "Speed-up to the target and its two factors",
        described(
            "Columns that rise by hardware efficiency and fall by statistical efficiency",
            (said.rstrip(".") for said in speedup_factors.sentences(compared)),
        ),
        lambda width: _factors(compared.metric, found, width),
        "Each column rises by the hardware efficiency and falls by the statistical efficiency; the "
        "diamond marks the speed-up that is left. Images/s cover all the time to the target, with "
        "the first step and validation." + shared * (not found["kind"].isin(RANKED).all()),
    )


def _factors(metric: Metric, found: pd.DataFrame, width: float) -> Figure:
    own = [
        (who, rows)
        for who, rows in found.groupby(["series", "kind"], sort=False)
        if not speed.beyond_base(rows).empty
    ]
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
        axes.set_xlabel(_AXES[kind])
        axes.set_title(safe(str(series), 30), loc="left", fontweight="bold")
    first = grid[0]
    for colour, text in (
        (HARDWARE, "hardware efficiency: ratio of images/s"),
        (LEARNING, "statistical efficiency: ratio of images needed"),
    ):
        key(first, text, color=colour, lw=7, alpha=0.75)
    key(first, "speed-up", color=FAINT, marker="D", ms=6, ls="none")
    key(first, "ideal", color=FAINT, marker="_", ms=12, ls="none")
    wanted = float(found["target"].iloc[0])
    name = "ratio" if width < NARROW else "ratio, on a logarithmic axis"
    figure.supylabel(f"{name}, to {metric.short} {metric.target(wanted)}", fontsize=9, color=FAINT)
    legend_below(figure, first)
    return figure


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
        at = (place + 0.17, row["speed_up"])
        note(axes, f"{row['speed_up']:.1f}", at, (0, -7), ha="center", va="top")


def _bar(axes: Axes, place: float, one: float, other: float, colour: str) -> None:
    if pd.notna(one) and pd.notna(other):
        low, high = sorted((one, other))
        axes.bar(place, high - low, 0.3, bottom=low, color=faded(colour, 0.75))
