"""The names of each task's results, their place in a record, and their format."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NONE = "n/a"
GUESSES = 5
"""With so many classes or fewer there is no top-5: it would be 1 whatever was learnt."""


@dataclass(frozen=True)
class Metric:
    """One measure of a trained network, from 0 to 1.

    name: the recipe's. short: in a column or a line. whole: of all of a split. tested: its field of
    the record's section ``test``, and those of the ends of its interval. column: its column in
    ``helpers.results.runs.frame``. scale: 100 where people read it in percent, else 1.
    """

    name: str
    short: str
    whole: str
    tested: tuple[str, str, str]
    column: str
    scale: int

    @property
    def of_epoch(self) -> str:
        """Its field of the record's ``epochs``."""
        return f"valid_{self.name}"

    @property
    def ends(self) -> tuple[str, str]:
        """The columns of its interval's ends, next to ``column``."""
        return f"{self.name}_low", f"{self.name}_high"

    def of_split(self, split: str) -> str:
        """``mean test AUC``, ``validation top-1``."""
        return self.whole.replace(self.short, f"{split} {self.short}")

    @property
    def heading(self) -> str:
        """Above a chart of the validation after each epoch."""
        return f"{capital(self.whole)} on the validation split{', %' if self.scale > 1 else ''}"

    def text(self, value: float | None) -> str:
        """``0.757``, ``75.7 %``; ``n/a`` without a value."""
        if value is None or math.isnan(value):
            return NONE
        return f"{100 * value:.1f} %" if self.scale > 1 else f"{value:.3f}"

    def difference(self, value: float) -> str:
        """``+0.012``, ``+1.2 points``: percentage points."""
        return f"{100 * value:+.1f} points" if self.scale > 1 else f"{value:+.3f}"

    def target(self, value: float) -> str:
        """A value to be reached, with all its digits: ``0.70``, ``70 %``."""
        if self.scale > 1:
            return f"{100 * value:g} %"
        return f"{value:.2f}" if math.isclose(value, round(value, 2)) else f"{value:g}"

    def of(self, test: Mapping[str, Any]) -> tuple[float | None, ...]:
        """The metric and the ends of its interval in a record's section ``test``."""
        return tuple(test.get(field) for field in self.tested)


AUC = Metric("auc", "AUC", "mean AUC", ("mean_auc", "mean_low", "mean_high"), "mean_auc", scale=1)
TOP1, TOP5 = (
    Metric(name, short, short, (name, f"{name}_low", f"{name}_high"), f"test_{name}", scale=100)
    for name, short in (("top1", "top-1"), ("top5", "top-5"))
)


@dataclass(frozen=True)
class Task:
    """The meaning of a network's outputs, and the metrics of their quality.

    name: the recipe's. outputs: the field of a record's section ``test`` that has a row for each.
    metrics: by the first, runs are compared; the rows have it too. one: what an output stands for.
    file: the CSV file with those rows.
    """

    name: str
    outputs: str
    metrics: tuple[Metric, ...]
    one: str
    file: str

    @property
    def metric(self) -> Metric:
        """The metric by which runs are compared."""
        return self.metrics[0]

    def said(self, epoch: Mapping[str, Any]) -> str:
        """The validation result of an epoch, ``AUC 0.757``, for a line with others."""
        texts = {metric.short: metric.text(epoch[metric.of_epoch]) for metric in self.metrics}
        texts_of = [f"{name} {text}" for name, text in texts.items() if text != NONE]
        return ", ".join(texts_of) or f"{self.metric.short} {NONE}"


MULTILABEL = Task("multilabel", "findings", (AUC,), "finding", "auc")
MULTICLASS = Task("multiclass", "classes", (TOP1, TOP5), "class", "classes")
TASKS = {task.name: task for task in (MULTILABEL, MULTICLASS)}


def of(recipe: Mapping[str, Any]) -> Task:
    """The task of a recipe as a record has it."""
    return TASKS[recipe["task"]]


def metric_of(recipe: Mapping[str, Any]) -> Metric:
    """The metric that a recipe's targets are of; learning is shown by it."""
    task = of(recipe)
    return next((m for m in task.metrics if m.name == recipe["metric"]), task.metric)


def capital(text: str) -> str:
    """With a capital, as at a sentence's beginning; the rest as it is."""
    return text[:1].upper() + text[1:]
