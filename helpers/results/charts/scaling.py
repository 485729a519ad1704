"""Draw the speed-ups against the number of devices."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from helpers.results import learning_curves
from helpers.results import scaling as speed_ups
from helpers.results.charts.style import Chart, described, key, line_of, on_devices
from helpers.results.comparison import Comparison
from helpers.training.figure_style import FAINT, heading, legend_below, panels, safe


def scaling(compared: Comparison) -> Chart | None:
    """The speed-ups of throughput and of the time to the target, with the ideal line.

    Without a target, the time is that of the whole training. None if all runs are on the
    same number of devices. Lines span the minimum and maximum of the repeats.
    """
    if not speed_ups.several(compared):
        return None
    numbers = speed_ups.numbers(compared)
    wanted = learning_curves.main_target(compared)
    time, title = "time_speed_up", "Whole training, compiling included"
    if wanted is not None:
        time = "target_speed_up"
        title = f"Time to {compared.metric.short} {compared.metric.target(wanted)}"
    panels_of = {"speed_up": "Images/s in steady state", time: title}
    alt = described(
        "Speed-ups of images per second and of the time, against devices",
        (
            f"{on_devices(row)} {row['speed_up']:.2f} and {row[time]:.2f}"
            for _, row in speed_ups.beyond_base(numbers).iterrows()
        ),
    )
    return Chart(
        "scaling",
        "Speed-up on more devices",
        alt,
        lambda width: _scaling(numbers, panels_of, width),
    )


def _scaling(numbers: pd.DataFrame, panels_of: dict[str, str], width: float) -> Figure:
    labels = list(dict.fromkeys(numbers["label"]))
    figure, found = panels(len(panels_of), width, 2.9)
    counts = sorted(numbers["devices"].unique())
    for axes, (column, title) in zip(found, panels_of.items(), strict=True):
        for series, rows in numbers.groupby("series", sort=False):
            style = line_of(str(rows["label"].iloc[0]), labels)
            axes.plot(rows["devices"], rows[column], lw=2, label=safe(str(series)), **style)
            ends = rows[f"{column}_low"], rows[f"{column}_high"]
            axes.vlines(rows["devices"], *ends, color=style["color"], lw=4, alpha=0.35)
        base = min(numbers["base"])
        axes.plot(counts, [count / base for count in counts], color=FAINT, lw=1, ls=":")
        heading(axes, title)
        _device_axis(axes, counts)
    key(found[0], "ideal", color=FAINT, lw=1, ls=":")
    legend_below(figure, found[0])
    return figure


def _device_axis(axes: Axes, counts: Sequence[int]) -> None:
    """Numbers of devices as ticks, on logarithmic axes where they are far apart."""
    if max(counts) > 8 * min(counts):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(list(counts), [str(count) for count in counts])
    axes.set_xlabel("devices")
