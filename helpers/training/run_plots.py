"""The charts of a notebook's own run: learning curves and ROC curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from helpers.record.tasks import Task
from helpers.training import roc_auc
from helpers.training.figure_style import FAINT, WIDTH, figure_of, heading, panels, styled

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
        if len(axes.lines) > 1:
            axes.legend(frameon=False)
    heading(left, "Loss")
    heading(right, task.metric.heading)
    return figure


@styled
def roc(labels: np.ndarray, scores: np.ndarray, result: roc_auc.Evaluation) -> Figure:
    """The ROC curve of each finding in the mean, named where it is the best or the worst."""
    from sklearn.metrics import roc_curve  # takes half a second, which ranks need not wait

    figure, axes = figure_of(WIDTH / 2, WIDTH / 2)
    table = result.table[result.table["finding"].isin(result.in_mean)]
    named = (
        {table["auc"].idxmax(): VALIDATION, table["auc"].idxmin(): "#D55E00"} if len(table) else {}
    )
    for column, row in table.iterrows():
        false, true, _ = roc_curve(labels[:, column], scores[:, column])
        axes.plot(false, true, color=TRAINING, lw=1)
        if colour := named.get(column):
            label = f"{row['finding'].replace('_', ' ')}: {row['auc']:.2f}"
            axes.plot(false, true, color=colour, lw=2, label=label, zorder=3)
    axes.plot([0, 1], [0, 1], color=FAINT, lw=1, ls=":")
    axes.set(xlabel="false positive rate", ylabel="true positive rate")
    heading(axes, "ROC curves, best and worst named")
    if named:
        axes.legend(frameon=False, loc="lower right")
    return figure
