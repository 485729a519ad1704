"""Charts of how well and how quickly it was learnt."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from helpers.results import published
from helpers.results.charts.style import labels_of, line_of, name_rows
from helpers.results.comparison import Comparison, Entry, widest
from helpers.results.learning_curves import history
from helpers.training.figure_style import (
    FAINT,
    GRID,
    WIDTH,
    figure_of,
    legend_below,
    panels,
    safe,
    styled,
)

_PUBLISHED = "Mean, published"
_MEAN = ("mean_auc", "mean_low", "mean_high")


@styled
def curves(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Learning curves against epochs, each framework on its most devices: losses, AUC."""
    return _curves(compared, "epoch", "epoch", width)


@styled
def clock_curves(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """The same against the clock: seconds of training and validation so far."""
    return _curves(compared, "clock", "seconds of training and validation", width)


def _curves(compared: Comparison, across: str, name: str, width: float) -> Figure | None:
    entries = [e for e in widest(compared.entries) if e.content.get("epochs")]
    if not entries:
        return None
    figure, (left, right) = panels(2, width, 3.6)
    for entry in entries:
        epochs = history(entry)
        style = line_of(entry.label, labels_of(entries))
        x, name_of = epochs[across], entry.timed if across == "clock" else entry.run
        left.plot(x, epochs["valid_loss"], lw=2.2, label=safe(name_of), **style)
        left.plot(x, epochs["train_loss"], lw=1, alpha=0.75, **style | {"ms": 3})
        right.plot(x, epochs["valid_auc"], lw=2.2, label=safe(name_of), **style)
    left.set_title("Loss: validation bold, training thin", loc="left")
    right.set_title("Mean AUC on the validation part", loc="left")
    for axes in (left, right):
        axes.set_xlabel(name)
        if across == "epoch":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        else:
            axes.set_xlim(left=0)
    _chance(right)
    legend_below(figure, left)
    return figure


def _chance(axes: Axes) -> None:
    axes.axhline(0.5, color=FAINT, lw=1, ls=":")
    axes.annotate(
        "chance",
        (0.01, 0.5),
        xycoords=("axes fraction", "data"),
        fontsize=8,
        va="bottom",
        color=FAINT,
    )


@styled
def auc(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """Test AUC per finding and their mean with 95 % intervals, each framework on its most devices.

    The last row is the mean that the article published, on 1 V100 (small) and on 4 (large).
    """
    entries = widest(compared.finished)
    if not entries:
        return None
    findings = list(
        dict.fromkeys(r["finding"] for e in entries for r in e.content["test"]["findings"])
    )
    rows = [*findings, "Mean", _PUBLISHED]
    spread = min(0.8, 0.16 * (len(entries) - 1))
    offsets = np.linspace(-spread / 2, spread / 2, len(entries)) if len(entries) > 1 else [0.0]
    figure, axes = figure_of(1.4 + len(rows) * max(0.3, 0.11 * len(entries)), width)
    for entry, offset in zip(entries, offsets, strict=True):
        test = entry.content["test"]
        table = {r["finding"]: r for r in test["findings"]}
        means = dict(zip(("auc", "low", "high"), map(test.get, _MEAN), strict=True))
        mark = line_of(entry.label, labels_of(entries)) | {"ls": "none"}
        for row, finding in enumerate(rows):
            found = means if finding == "Mean" else table.get(finding)
            if found is None or found["auc"] is None:
                continue
            if found["low"] is not None and found["high"] is not None:
                ends = [found["low"], found["high"]]
                axes.plot(ends, [row + offset] * 2, color=mark["color"], lw=1.5, alpha=0.7)
            axes.plot(found["auc"], row + offset, **mark)
        axes.plot([], [], label=safe(entry.run), **mark)
    _published_means(axes, len(rows) - 1)
    for row, finding in enumerate(findings):
        if not any(_has_auc(entry, finding) for entry in entries):
            axes.annotate(
                "not computable",
                (0.5, row),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=FAINT,
            )
    axes.axvline(0.5, color=FAINT, lw=1, ls=":")
    for place in (len(findings), len(findings) + 1):
        axes.axhline(place - 0.5, color=GRID, lw=1.2)
    names = [safe(name.replace("_", " ")) for name in rows]
    name_rows(axes, names, above=0.6, below=0.6)
    axes.set_xlabel("test AUC; lines: 95 % interval, dotted: chance")
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


def _has_auc(entry: Entry, finding: str) -> bool:
    rows = entry.content["test"]["findings"]
    return any(r["finding"] == finding and r["auc"] is not None for r in rows)
