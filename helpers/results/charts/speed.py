"""Draw where the seconds went."""

import pandas as pd
from matplotlib.figure import Figure

from helpers.results.charts.style import (
    Chart,
    described,
    key,
    name_rows,
    note,
    on_devices,
)
from helpers.results.comparability import flagged
from helpers.results.comparison import Comparison, devices
from helpers.results.repeated_runs import widest_first
from helpers.results.runs import PARTS
from helpers.results.tables import IN_MINUTES, time_text
from helpers.training.figure_style import SHARES, figure_of, legend_below, safe

_LOOKS = {
    "seconds_compiling": ("compiling", SHARES[3]),
    "seconds_training": ("training", SHARES[0]),
    "seconds_validating": ("validation", SHARES[1]),
    "seconds_other": ("other", SHARES[2]),
}


def parts(compared: Comparison) -> Chart | None:
    """How each label's seconds on its most devices were spent, stacked; None without a run."""
    found, count = widest_first(compared)
    if found.empty:
        return None
    rows = found.head(count)
    alt = described(
        "Seconds of training by what they went into",
        (
            f"{on_devices(row)} {time_text(row['seconds'])}, of which "
            + ", ".join(f"{name} {time_text(row[part])}" for part, (name, _) in _LOOKS.items())
            for _, row in rows.iterrows()
        ),
    )
    return Chart("parts", "Where the seconds went", alt, lambda width: _parts(rows, width))


def _parts(rows: pd.DataFrame, width: float) -> Figure:
    """Scale the parts, which are medians, so that they add up to the row's total."""
    figure, axes = figure_of(1.1 + 0.26 * len(rows), width)
    whole = rows[list(PARTS)].sum(axis=1)
    long = rows["seconds"].max() >= IN_MINUTES
    scale = rows["seconds"] / whole / (60 if long else 1)
    start = 0 * scale
    places = range(len(rows))
    for part, (name, colour) in _LOOKS.items():
        length = rows[part] * scale
        axes.barh(places, length, 0.62, left=start, color=colour, alpha=0.9)
        key(axes, name, color=colour, lw=7)
        start = start + length
    for place, (end, seconds) in enumerate(zip(start, rows["seconds"], strict=True)):
        note(axes, time_text(seconds), (end, place), (5, 0))
    most = rows["devices"].max()
    names = [
        safe(row["label"]) + ("" if row["devices"] == most else f", {devices(row['devices'])}")
        for _, row in rows.iterrows()
    ]
    of = zip(names, rows["flags"], strict=True)
    name_rows(axes, [flagged(name, flags) for name, flags in of], above=0.6, below=0.6)
    axes.set_xlim(0, 1.12 * float(start.max()))
    axes.set_xlabel(f"{'minutes' if long else 'seconds'} on {devices(most)}")
    legend_below(figure, axes)
    return figure
