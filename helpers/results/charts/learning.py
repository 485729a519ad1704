"""Charts of how well and how quickly it was learnt."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from helpers.results import by_class as by_class_of
from helpers.results import published
from helpers.results.charts.style import labels_of, line_of, name_rows
from helpers.results.comparison import Comparison, widest
from helpers.results.learning_curves import history
from helpers.training.figure_style import (
    FAINT,
    GRID,
    LONGEST,
    LONGEST_NARROW,
    NARROW,
    WIDTH,
    figure_of,
    legend_below,
    panels,
    safe,
    styled,
)

_PUBLISHED = "Mean, published"


@styled
def curves(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Learning curves against epochs, each framework on its most devices: losses, metric."""
    return _curves(compared, "epoch", "epoch", width)


@styled
def clock_curves(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """The same against the clock: seconds of training and validation so far."""
    return _curves(compared, "clock", "seconds of training and validation", width)


def _curves(compared: Comparison, across: str, name: str, width: float) -> Figure | None:
    entries = [e for e in widest(compared.entries) if e.content.get("epochs")]
    if not entries:
        return None
    metric = compared.metric
    figure, (left, right) = panels(2, width, 3.6)
    for entry in entries:
        epochs = history(entry)
        style = line_of(entry.label, labels_of(entries))
        x, name_of = epochs[across], entry.timed if across == "clock" else entry.run
        left.plot(x, epochs["valid_loss"], lw=2.2, label=safe(name_of), **style)
        left.plot(x, epochs["train_loss"], lw=1, alpha=0.75, **style | {"ms": 3})
        right.plot(x, metric.scale * epochs[metric.of_epoch], lw=2.2, label=safe(name_of), **style)
    left.set_title("Loss: validation bold, training thin", loc="left")
    right.set_title(metric.heading, loc="left")
    for axes in (left, right):
        axes.set_xlabel(name)
        if across == "epoch":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        else:
            axes.set_xlim(left=0)
    if metric is compared.task.metric:
        for chance in by_class_of.chances(entries):
            _chance(right, metric.scale * chance)
    legend_below(figure, left)
    return figure


def _chance(axes: Axes, value: float) -> None:
    axes.axhline(value, color=FAINT, lw=1, ls=":")
    axes.annotate(
        "chance",
        (0.01, value),
        xycoords=("axes fraction", "data"),
        fontsize=8,
        va="bottom",
        color=FAINT,
    )


@styled
def by_class(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """The test part by finding or class and as a whole, with 95 % intervals.

    Each framework on its most devices. For the article's network the last row is the mean that the
    article published, on 1 V100 (small) and on 4 (large).
    """
    entries = widest(compared.finished)
    if not entries:
        return None
    task, names = compared.task, by_class_of.names(compared)
    beside, whole = published.belong(compared), by_class_of.whole_name(compared)
    rows = [*names, whole, *([_PUBLISHED] if beside else [])]
    spread = min(0.8, 0.16 * (len(entries) - 1))
    offsets = np.linspace(-spread / 2, spread / 2, len(entries)) if len(entries) > 1 else [0.0]
    figure, axes = figure_of(1.4 + len(rows) * max(0.3, 0.11 * len(entries)), width)
    told, scale = set(), task.metric.scale
    for entry, offset in zip(entries, offsets, strict=True):
        found = by_class_of.rows(entry) | by_class_of.whole(entry, whole)
        mark = line_of(entry.label, labels_of(entries)) | {"ls": "none"}
        for row, name in enumerate(rows):
            value, low, high = found.get(name, (None, None, None))
            if value is None:
                continue
            told.add(name)
            if low is not None and high is not None:
                ends = [scale * low, scale * high]
                axes.plot(ends, [row + offset] * 2, color=mark["color"], lw=1.5, alpha=0.7)
            axes.plot(scale * value, row + offset, **mark)
        axes.plot([], [], label=safe(entry.run), **mark)
    if beside:
        _published_means(axes, len(rows) - 1)
    for row, name in enumerate(names):
        if name not in told:
            axes.annotate(
                "not computable",
                (0.5 * scale, row),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=FAINT,
            )
    for chance in by_class_of.chances(entries):
        axes.axvline(scale * chance, color=FAINT, lw=1, ls=":")
    for place in range(len(names), len(rows)):
        axes.axhline(place - 0.5, color=GRID, lw=1.2)
    longest, between = (LONGEST, "; ") if width >= NARROW else (LONGEST_NARROW, "\n")
    name_rows(axes, [safe(name.replace("_", " "), longest) for name in rows], above=0.6, below=0.6)
    unit = ", %" if task.metric.percent else ""
    axes.set_xlabel(f"test {task.metric.short}{unit}{between}lines: 95 % interval, dotted: chance")
    legend_below(figure, axes)
    return figure


def _published_means(axes: Axes, row: int) -> None:
    numbers = published.results().dropna(subset=["mean_auc"])
    labels = list(numbers["label"].unique())
    for label, count, mean in numbers[["label", "devices", "mean_auc"]].itertuples(index=False):
        mark = line_of(label, [label]) | {"ls": "none", "mfc": "none", "ms": 7 if count > 1 else 4}
        place = (labels.index(label) - (len(labels) - 1) / 2) * 0.8 / len(labels)
        axes.plot(mean, row + place, **mark)
    axes.plot(
        [],
        [],
        ls="none",
        marker="o",
        mfc="none",
        color=FAINT,
        label="published, V100s",
    )
