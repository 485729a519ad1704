"""What each task's results are called, where a record has them, and how they are written.

Everything that shows a result asks here, so that nothing else has to know the tasks apart.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NONE = "n/a"


@dataclass(frozen=True)
class Metric:
    """One measure of a trained network, from 0 to 1.

    name: the recipe's. short, of_part and of_test: what it is called, in a column, of any part and
    of the test part. tested: its field of the record's section ``test``, and those of the ends of
    its interval. figure: its column in ``helpers.results.comparison.results``. percent: whether
    people read it in percent.
    """

    name: str
    short: str
    of_part: str
    of_test: str
    of_validation: str
    tested: tuple[str, str, str]
    figure: str
    percent: bool

    @property
    def of_epoch(self) -> str:
        """Its field of the record's ``epochs``."""
        return f"valid_{self.name}"

    @property
    def ends(self) -> tuple[str, str]:
        """The columns of its interval's ends, beside ``figure``."""
        return f"{self.name}_low", f"{self.name}_high"

    @property
    def scale(self) -> float:
        """What a value is multiplied by where it is drawn."""
        return 100.0 if self.percent else 1.0

    @property
    def heading(self) -> str:
        """Above a chart."""
        name = self.of_part[0].upper() + self.of_part[1:]
        return f"{name} on the validation part{', %' if self.percent else ''}"

    def text(self, value: float | None) -> str:
        """``0.757``, ``75.7 %``; ``n/a`` without a value."""
        if value is None or math.isnan(value):
            return NONE
        return f"{100 * value:.1f} %" if self.percent else f"{value:.3f}"

    def difference(self, value: float) -> str:
        """``+0.012``, ``+1.2 points``, which are hundredths of all images."""
        return f"{100 * value:+.1f} points" if self.percent else f"{value:+.3f}"

    def target(self, value: float) -> str:
        """A value to be reached, with no more digits than it has: ``0.70``, ``70 %``."""
        if self.percent:
            return f"{100 * value:g} %"
        return f"{value:.2f}" if math.isclose(value, round(value, 2)) else f"{value:g}"

    def of(self, test: Mapping[str, Any]) -> tuple[float | None, float | None, float | None]:
        """The metric and the ends of its interval in a record's section ``test``."""
        value, low, high = (test.get(field) for field in self.tested)
        return value, low, high


AUC = Metric(
    "auc",
    short="AUC",
    of_part="mean AUC",
    of_test="mean test AUC",
    of_validation="mean validation AUC",
    tested=("mean_auc", "mean_low", "mean_high"),
    figure="mean_auc",
    percent=False,
)
TOP1, TOP5 = (
    Metric(
        name,
        short=short,
        of_part=short,
        of_test=f"test {short}",
        of_validation=f"validation {short}",
        tested=(name, f"{name}_low", f"{name}_high"),
        figure=f"test_{name}",
        percent=True,
    )
    for name, short in (("top1", "top-1"), ("top5", "top-5"))
)


@dataclass(frozen=True)
class Task:
    """What the outputs of a network are, and how well it finds them.

    name: the recipe's, and the field of a record's section ``test`` that has a row for each of
    them. metrics: the first is the one that runs are compared by; the rows have it too. one: what
    a single output stands for. whole: what the first metric is over, as a table's row. groups:
    what is drawn for its interval.
    """

    name: str
    metrics: tuple[Metric, ...]
    one: str
    whole: str
    groups: str

    @property
    def metric(self) -> Metric:
        """The one that runs are compared by."""
        return self.metrics[0]

    def said(self, epoch: Mapping[str, Any]) -> str:
        """What the validation after an epoch found, ``AUC 0.757``, in a line among others."""
        texts = {metric.short: metric.text(epoch[metric.of_epoch]) for metric in self.metrics}
        told = [f"{name} {text}" for name, text in texts.items() if text != NONE]
        return ", ".join(told) or f"{self.metric.short} {NONE}"

    def chance(self, outputs: int) -> float:
        """What guessing comes to, by the first metric."""
        return 0.5 if self.metric is AUC else 1 / outputs


FINDINGS = Task("findings", (AUC,), one="finding", whole="Mean", groups="patients")
CLASSES = Task("classes", (TOP1, TOP5), one="class", whole="All images", groups="groups")
TASKS = {task.name: task for task in (FINDINGS, CLASSES)}


def of(recipe: Mapping[str, Any]) -> Task:
    """The task of a recipe as a record has it."""
    return TASKS[recipe.get("task", FINDINGS.name)]


def metric_of(recipe: Mapping[str, Any]) -> Metric:
    """The metric that a recipe's targets are of; learning is shown by it."""
    task = of(recipe)
    return next((m for m in task.metrics if m.name == recipe.get("metric")), task.metric)
