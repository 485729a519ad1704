"""Draw the charts of speed, and the first one, with the article's published figures."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.record.tasks import Metric, capital
from helpers.results import published
from helpers.results.charts.style import (
    Chart,
    colour_of,
    described,
    faded,
    few,
    interval,
    marker_of,
    name_rows,
    note,
    on_devices,
    widest_rows,
)
from helpers.results.comparability import marked, together
from helpers.results.comparison import ENDS, Comparison, devices
from helpers.results.ranking import unranked
from helpers.results.repeated_runs import field, ordered, summarise
from helpers.results.tables import IN_MINUTES, short_number, time_text
from helpers.training.figure_style import GRID, NARROW, PAGE, figure_of, heading, panels, safe

MOST = 10
"""Rows of the first chart; beyond these it would no longer fit the first screen."""
_KINDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("real", "files_images_per_second", {}),
    ("synthetic", "synthetic_images_per_second", {"mfc": PAGE}),
)


def first(compared: Comparison) -> Chart | None:
    """The answer as a picture; None without a finished run.

    Training times and images/s of the ranked runs, or, if nothing is ranked, the metric on the
    test part of each framework on its most devices.
    """
    rows, metric, numbers = field(compared), compared.task.metric, summarise(compared)
    if not rows.empty:
        times = (
            f"{on_devices(row)} {time_text(row['seconds'])}, "
            f"{short_number(row['images_per_second'])} images/s"
            for _, row in rows.iterrows()
        )
        alt = described("Training time, and images per second in steady state", times)
        return Chart("first", "In one picture", alt, lambda width: _times(rows, width))
    if numbers.empty:
        return None
    known = numbers.dropna(subset=[metric.figure])
    values = (f"{on_devices(row)} {metric.text(row[metric.figure])}" for _, row in known.iterrows())
    return Chart(
        "first",
        "In one picture",
        described(capital(metric.of_test), values),
        lambda width: _metrics(metric, widest_rows(numbers), width),
    )


def _times(rows: pd.DataFrame, width: float) -> Figure:
    shown = rows.head(MOST)
    figure, axes = figure_of(0.9 + 0.27 * len(shown), width)
    ends = [f"seconds{end}" for end in ENDS]
    long = shown["seconds_high"].max() >= IN_MINUTES
    scaled = shown.assign(**{end: shown[end] / (60 if long else 1) for end in ends})
    for place, (row, drawn) in enumerate(
        zip(shown.to_dict("records"), scaled.to_dict("records"), strict=True)
    ):
        rate = f"{short_number(row['images_per_second'])} images/s"
        text = f"{time_text(row['seconds'])}; {rate}"
        interval(axes, drawn, "seconds", place, text, marker=marker_of(row["label"]))
    names = [marked(safe(row["label"]), row["marks"]) for _, row in shown.iterrows()]
    name_rows(axes, names, above=0.6, below=0.6)
    axes.set_xlim(0, 1.3 * float(scaled["seconds_high"].max()))
    on = devices(shown["devices"].iloc[0])
    line = "; line: minimum and maximum of the runs" * bool(shown["runs"].max() > 1)
    axes.set_xlabel(
        f"{'minutes' if long else 'seconds'} of training with compiling, {on}{line}; "
        f"images/s in steady state{_more(rows, shown)}"
    )
    return figure


def _more(rows: pd.DataFrame, shown: pd.DataFrame) -> str:
    more = len(rows) - len(shown)
    return f"; {more} more runs below" if more else ""


def _bars(repeated: "pd.Series[bool]") -> str:
    """What the bars of the rows show, some of which are of repeated runs."""
    ranges = "range over repeated runs"
    if repeated.all():
        return ranges
    return f"95 % interval, or {ranges}" if repeated.any() else "95 % interval"


def _metrics(metric: Metric, numbers: pd.DataFrame, width: float) -> Figure:
    """A row a label: the metric with its interval, or with the range of its repeats."""
    known = numbers.dropna(subset=[metric.figure]).sort_values(
        metric.figure, ascending=False, kind="stable"
    )
    shown = known.head(MOST)
    figure, axes = figure_of(0.9 + 0.27 * len(shown), width)
    of_runs = (f"{metric.figure}_low", f"{metric.figure}_high")
    for place, row in enumerate(shown.to_dict("records")):
        ends = metric.ends if pd.notna(row[metric.ends[0]]) else of_runs
        scaled = {
            f"{metric.figure}{end}": metric.scale * row[name]
            for end, name in zip(("", "_low", "_high"), (metric.figure, *ends), strict=True)
        }
        text, mark = metric.text(row[metric.figure]), marker_of(row["label"])
        interval(axes, row | scaled, metric.figure, place, text, marker=mark)
    between = ",\n" if width < NARROW else ", "
    names = [
        marked(f"{safe(row['label'])}{between}{devices(row['devices'])}", row["marks"])
        for _, row in shown.iterrows()
    ]
    name_rows(axes, names, above=0.6, below=0.6)
    axes.margins(x=0.12)
    unit = ", %" if metric.percent else ""
    bars = _bars(shown[metric.ends[0]].isna())
    axes.set_xlabel(f"{metric.of_test}{unit}; bar: {bars}{_more(known, shown)}")
    return figure


def throughput(compared: Comparison) -> Chart | None:
    """Images/s of every run on real and on synthetic data, from the same rounds."""
    numbers = ordered(compared)
    if numbers.empty:
        return None
    alt = described(
        "Images per second in the rounds after training",
        (
            f"{on_devices(row)} {short_number(row['files_images_per_second'])} on real data, "
            f"{short_number(row['synthetic_images_per_second'])} synthetic"
            for _, row in numbers.iterrows()
        ),
    )
    return Chart(
        "throughput", "Real and synthetic data", alt, lambda width: _throughput(few(numbers), width)
    )


def _throughput(numbers: pd.DataFrame, width: float) -> Figure:
    """Medians, with a line from their minimum to their maximum."""
    figure, axes = figure_of(1.0 + 0.55 * len(numbers), width)
    names = []
    for place, row in enumerate(numbers.to_dict("records")):
        for number, (kind, name, style) in enumerate(_KINDS):
            mark: dict[str, Any] = {"marker": marker_of(row["label"])} | style
            text = f"{short_number(row[name])}  {kind}"
            interval(axes, row, name, place + (number - 0.5) * 0.36, text, **mark)
        run = ("\n" if width < NARROW else ", ").join([safe(row["label"]), devices(row["devices"])])
        names.append("\n".join([run, *row["marks"]]))
    name_rows(axes, names, above=0.55, below=0.55)
    most = max(float(numbers[f"{name}_high"].max()) for _, name, _ in _KINDS)
    axes.set_xlim(0, 1.3 * most)
    repeated = bool(numbers["runs"].max() > 1)
    of = "the runs (of one run: its rounds)" if repeated else "the rounds of one run"
    axes.set_xlabel(f"images per second; line: minimum and maximum of {of}")
    return figure


def placed(compared: Comparison) -> Chart | None:
    """Measured and published training time on the smallest and largest number of devices.

    Two panels with their own axes: other hardware, other images, so only the pattern compares.
    None for runs of another network or task than the article's.
    """
    numbers = summarise(compared)
    if numbers.empty or not published.belong(compared):
        return None
    return Chart(
        "placed",
        "Measured and published times",
        described(
            "Training time by framework and number of devices, with the times published in 2018",
            (f"{on_devices(row)} {time_text(row['seconds'])}" for _, row in numbers.iterrows()),
        ),
        lambda width: _placed(numbers, width),
        "Hardware, images and versions differ: compare the pattern, not the minutes."
        if unranked(compared) is None
        else "Hardware, images and versions differ, and our times are not ranked: "
        "neither the minutes nor their pattern can be compared.",
    )


def _placed(numbers: pd.DataFrame, width: float) -> Figure:
    theirs = published.results().dropna(subset=["seconds"])
    most = max(theirs["label"].nunique(), numbers["label"].nunique())
    figure, (left, right) = panels(2, width, 1.3 + 0.42 * most)
    long = numbers["seconds"].max() >= IN_MINUTES
    _dots(left, numbers, 60.0 if long else 1.0, hollow=False)
    heading(left, "Measured here")
    left.set_xlabel(f"{'minutes' if long else 'seconds'} of training, by number of devices")
    _dots(right, theirs.assign(marks=[()] * len(theirs)), 60.0, hollow=True)
    heading(right, "Published: V100, 2018")
    right.set_xlabel("minutes of training, by number of GPUs")
    return figure


def _dots(axes: Axes, numbers: pd.DataFrame, divisor: float, *, hollow: bool) -> None:
    labels = list(dict.fromkeys(numbers["label"]))
    axes.grid(False)
    axes.grid(axis="x", color=GRID, lw=0.8)
    for y, label in enumerate(labels):
        of_label, colour = numbers[numbers["label"] == label], colour_of(label)
        times = of_label["seconds"] / divisor
        axes.plot([times.min(), times.max()], [y, y], color=faded(colour, 0.5), lw=2)
        mark: dict[str, Any] = {"marker": marker_of(label), "color": colour, "ms": 7, "ls": "none"}
        for count, time in zip(of_label["devices"], times, strict=True):
            axes.plot(time, y, mfc=PAGE if hollow else colour, **mark)
            note(axes, str(count), (time, y), (0, 6), ha="center", va="baseline")
    marks = {label: together(of) for label, of in numbers.groupby("label")["marks"]}
    name_rows(axes, ["\n".join([safe(label), *marks[label]]) for label in labels], above=0.7)
    axes.set_xlim(0, 1.08 * float(numbers["seconds"].max()) / divisor)


def energy(compared: Comparison) -> Chart | None:
    """Images per joule of every run whose GPUs report their energy; None if no GPU does."""
    numbers = summarise(compared).dropna(subset=["images_per_joule"])
    if numbers.empty:
        return None
    alt = described(
        "Images trained per joule",
        (
            f"{row['label']} on {devices(row['devices'])} {row['images_per_joule']:.3g}"
            for _, row in numbers.iterrows()
        ),
    )
    return Chart("energy", "Energy", alt, lambda width: _energy(few(numbers), width))


def _energy(numbers: pd.DataFrame, width: float) -> Figure:
    figure, axes = figure_of(1.0 + 0.45 * len(numbers), width)
    for place, (_, row) in enumerate(numbers.iterrows()):
        value = row["images_per_joule"]
        axes.barh(place, value, 0.6, color=faded(colour_of(row["label"]), 0.85))
        text = f"{value:.3g} images/J, {short_number(row['joules'] / 1000)} kJ in total"
        note(axes, text, (value, place), (5, 0))
    names = [f"{row['label']}, {row['devices']}x" for _, row in numbers.iterrows()]
    name_rows(axes, [safe(name) for name in names])
    axes.set_xlim(0, 1.6 * float(numbers["images_per_joule"].max()))
    axes.set_xlabel("images trained per joule of the GPUs")
    return figure
