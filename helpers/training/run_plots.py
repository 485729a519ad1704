"""The charts of a notebook's own run: images, learning curves and test results."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from helpers.record.tasks import MULTICLASS, MULTILABEL, Task
from helpers.training import accuracy, roc_auc
from helpers.training.figure_style import (
    FAINT,
    INK,
    WIDTH,
    Chart,
    heading,
    panels,
    plain_axes,
    safe,
    styled,
)

IMAGES = 8
CONFUSED = 12
"""Classes in the chart of those most often confused with others."""
TRAINING, VALIDATION = "#A9B7C2", "#0072B2"


@styled
def learning(history: Sequence[Mapping[str, Any]], task: Task) -> Figure:
    """Loss and the task's metrics over the epochs; ``history`` as the record's ``epochs``."""
    table = pd.DataFrame(history)
    figure, (left, right) = panels(2, WIDTH, 2.6)
    line: dict[str, Any] = {"lw": 2, "marker": "o"}
    for part, colour, of in (("training", TRAINING, "train"), ("validation", VALIDATION, "valid")):
        left.plot(table["epoch"], table[f"{of}_loss"], color=colour, label=part, **line)
    for metric, style in zip(task.metrics, ("-", "--"), strict=False):
        drawn = metric.scale * table[metric.of_epoch].astype(float)  # None where there is none
        if metric is task.metric or drawn.notna().any():
            right.plot(
                table["epoch"], drawn, color=VALIDATION, ls=style, label=metric.short, **line
            )
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("epoch")
    left.legend(frameon=False)
    if len(right.lines) > 1:
        right.legend(frameon=False)
    heading(left, "Loss")
    heading(right, task.metric.heading)
    return figure


@styled
def roc(labels: np.ndarray, scores: np.ndarray, result: roc_auc.Evaluation) -> Figure:
    """The ROC curve of each finding in the mean, named where it is the best or the worst.

    Args:
        labels, scores: of the test part, (images, findings).
    """
    from sklearn.metrics import roc_curve  # takes half a second, which ranks need not wait

    figure = Chart(figsize=(WIDTH / 2, WIDTH / 2), layout="constrained")
    axes = figure.subplots()
    plain_axes(axes, grid="both")
    table = result.table[result.table["finding"].isin(result.in_mean)]
    named = (
        {table["auc"].idxmax(): VALIDATION, table["auc"].idxmin(): "#D55E00"} if len(table) else {}
    )
    for column, row in table.iterrows():
        false, true, _ = roc_curve(labels[:, column], scores[:, column])
        colour = named.get(column)
        label = f"{row['finding'].replace('_', ' ')}: {row['auc']:.2f}" if colour else None
        axes.plot(
            false,
            true,
            color=colour or TRAINING,
            lw=2 if colour else 1,
            label=label,
            zorder=3 if colour else 2,
        )
    axes.plot([0, 1], [0, 1], color=FAINT, lw=1, ls=":")
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    heading(axes, "ROC curves, best and worst named")
    if named:
        axes.legend(frameon=False, loc="lower right")
    return figure


@styled
def confused(targets: np.ndarray, scores: np.ndarray, result: accuracy.Evaluation) -> Figure:
    """The classes that are most often confused: the share of each, and the class named instead.

    Args:
        targets, scores: of the test part, (images,) and (images, classes); ``result`` has it all.
    """
    table = result.table.dropna(subset=["top1"]).assign(wrong=lambda rows: 1 - rows["top1"])
    table = table.sort_values("wrong", ascending=False, kind="stable").head(CONFUSED)
    figure = Chart(figsize=(WIDTH / 1.5, 1 + 0.3 * max(len(table), 1)), layout="constrained")
    axes = figure.subplots()
    plain_axes(axes, grid="x")
    rows = range(len(table))
    axes.barh(rows, 100 * table["wrong"], height=0.6, color=TRAINING)
    for row, name in enumerate(table["class"]):
        most = result.confusions[result.confusions["class"] == name]
        if not most.empty:
            first = most.iloc[0]
            axes.barh(row, 100 * first["share"], height=0.6, color=VALIDATION)
            axes.annotate(
                f"as {safe(first['predicted_as'])}",
                (100 * table["wrong"].iloc[row], row),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=INK,
            )
    axes.set_yticks(rows, [safe(name) for name in table["class"]])
    axes.set_ylim(max(len(table), 1) - 0.5, -0.5)
    axes.set_xlim(0, 1.3 * max(100 * table["wrong"].max() if len(table) else 0, 1))
    axes.set_xlabel("% of the class's test images; dark: as the class named")
    heading(axes, "Confused with another class")
    return figure


TEST: dict[str, Callable[..., Figure]] = {MULTILABEL.name: roc, MULTICLASS.name: confused}
"""What shows a test, by task, of its targets, its scores and what they come to."""
