"""Assemble the report's sections of charts, tables and sentences, in order.

The page and ``report.md`` are made of the same functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from helpers.results import (
    caveats,
    charts,
    comparison_tables,
    conclusions,
    fairness_tables,
    learning_curves,
    machine_tables,
    paired_test,
    published,
    resources,
    scaling,
    waits,
)
from helpers.results.charts import Chart
from helpers.results.comparison import Comparison
from helpers.results.tables import Table


@dataclass(frozen=True)
class Texts:
    """Sentences, one a line."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Utilisation:
    """The monitor's chart, which the page makes interactive."""

    title: str
    note: str = (
        "Drag to zoom, double-click to zoom out and point to read values, or use the arrow keys, "
        "+ and −."
    )


Block = Table | Chart | Texts | Utilisation


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; those that are None or empty tables are left out."""

    name: str
    title: str
    lead: str
    every: Sequence[Block | None]

    @property
    def blocks(self) -> list[Block]:
        return [
            block
            for block in self.every
            if block is not None and not (isinstance(block, Table) and block.empty)
        ]


def title(compared: Comparison) -> str:
    """The title of the whole report: what was trained."""
    recipes = [entry.content["recipe"] for entry in compared.entries if entry.task]
    names = dict.fromkeys(str(recipe["name"]) for recipe in recipes)
    trained = "CheXNet" if published.belong(compared) else " and ".join(names)
    return f"{trained}, framework against framework"


def sections(compared: Comparison) -> list[Section]:
    """Every section that has something to show, in the order in which a reader asks."""
    on_gpus = any(entry.content["devices"]["kind"] == "gpu" for entry in compared.finished)
    devices = "All lanes have the same axes, and time starts with the first epoch. " + (
        "100 % only means that the GPU was never without a kernel, not that it was full."
        if on_gpus
        else "The lanes show the host's CPU, because no GPU was used."
    )
    fair = (
        "The fairness check compares what each run used and computed with one float64 reference.",
        fairness_tables.passed(compared),
        learning_curves.on_same_batches(compared.finished),
    )
    known = [f"{a.question}: {a.text}" for a in conclusions.answers(compared) if a.text]
    known += filter(None, [paired_test.sentence(compared)])
    article = published.table() if published.belong(compared) and compared.finished else None
    every = [
        Section(
            "answer",
            "All runs",
            "",
            [comparison_tables.runs(compared), Texts("What to know", known) if known else None],
        ),
        Section(
            "time",
            "Where the seconds went",
            "",
            [charts.parts(compared), charts.curves(compared), charts.scaling(compared)],
        ),
        Section("timeline", "What the devices did", devices, [Utilisation("What the devices did")]),
        Section("limits", "What limits training", "", [waits.table(compared)]),
        Section(
            "fairness",
            "Is it fair",
            " ".join(filter(None, fair)),
            [fairness_tables.not_passed(compared), fairness_tables.settings(compared)],
        ),
        Section(
            "machine",
            "Machine and remarks",
            "",
            [machine_tables.machine(compared), caveats.remarks(compared)],
        ),
        Section(
            "more",
            "More figures",
            "",
            [
                scaling.table(compared),
                charts.losses(compared),
                charts.by_class(compared),
                resources.table(compared),
                machine_tables.settings(compared),
                article,
            ],
        ),
    ]
    return [section for section in every if section.blocks]
