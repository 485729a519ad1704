"""Assemble the report's sections of charts, tables and sentences, in order.

The page and ``report.md`` are made of the same functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from helpers.results import (
    by_class,
    caveats,
    charts,
    comparison_tables,
    conclusions,
    fairness_tables,
    learning_curves,
    machine_peak,
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
    folded: bool = False

    @property
    def empty(self) -> bool:
        return not self.lines


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
    """Blocks under a heading."""

    name: str
    title: str
    lead: str
    blocks: Sequence[Block]
    folded: bool = False


def title(compared: Comparison) -> str:
    """The title of the whole report: what was trained."""
    recipes = [entry.content["recipe"] for entry in compared.entries if entry.task]
    names = dict.fromkeys(str(recipe["name"]) for recipe in recipes)
    trained = "CheXNet" if published.belong(compared) else " and ".join(names)
    return f"{trained}, framework against framework"


def sections(compared: Comparison) -> list[Section]:
    """Every section that has something to show, in the order in which a reader asks."""
    every = [_answer, _time, _timeline, _limits, _fairness, _machine, _more, _article]
    found = [make(compared) for make in every]
    return [section for section in found if section.blocks]


def _shown(*blocks: Block | None) -> list[Block]:
    """The blocks that have something to show."""
    return [block for block in blocks if block is not None and not getattr(block, "empty", False)]


def _answer(compared: Comparison) -> Section:
    lines = [f"{a.question}: {a.text}" for a in conclusions.answers(compared) if a.text]
    blocks = _shown(comparison_tables.runs(compared), Texts("What to know", lines))
    return Section("answer", "All runs", "", blocks)


def _time(compared: Comparison) -> Section:
    blocks = _shown(charts.parts(compared), charts.curves(compared), charts.scaling(compared))
    return Section("time", "Where the seconds went", "", blocks)


def _timeline(compared: Comparison) -> Section:
    on_gpus = any(entry.content["devices"]["kind"] == "gpu" for entry in compared.finished)
    lead = "All lanes have the same axes, and time starts with the first epoch. " + (
        "100 % only means that the GPU was never without a kernel, not that it was full."
        if on_gpus
        else "The lanes show the host's CPU, because no GPU was used."
    )
    name = "What the devices did"
    return Section("timeline", name, lead, [Utilisation(name)])


def _limits(compared: Comparison) -> Section:
    return Section("limits", "What limits training", "", _shown(waits.table(compared)))


def _fairness(compared: Comparison) -> Section:
    lead = (
        "The fairness check compares what each run used and computed with one float64 reference. "
        f"{learning_curves.on_same_batches(compared.finished)}"
    )
    blocks = _shown(
        fairness_tables.not_passed(compared),
        fairness_tables.passed(compared),
        fairness_tables.settings(compared),
    )
    return Section("fairness", "Is it fair", lead.strip(), blocks)


def _machine(compared: Comparison) -> Section:
    blocks = _shown(
        machine_tables.cards(compared),
        machine_tables.against(compared),
        caveats.remarks(compared),
        Texts("About the published figures", published.scaling_notes(compared)),
    )
    return Section("machine", "Machine and remarks", "", blocks)


def _more(compared: Comparison) -> Section:
    """What only some readers look for: every block is folded."""
    blocks = _shown(
        scaling.table(compared),
        learning_curves.table(compared),
        charts.losses(compared),
        charts.by_class(compared),
        by_class.table(compared),
        replace(paired_test.table(compared), folded=True),
        resources.table(compared),
        machine_peak.table_of(compared),
        machine_tables.versions_table(compared),
        machine_tables.hardware(compared),
        caveats.unavailable(compared),
    )
    return Section("more", "More figures", "", blocks)


def _article(compared: Comparison) -> Section:
    """The figures of 2018, for runs of the article's network and findings."""
    blocks = _shown(
        charts.placed(compared),
        published.training(),
        published.synthetic(),
        Texts("About the published figures", published.notes()),
        Texts(*published.notebooks()),
    )
    shown = published.belong(compared) and compared.finished
    name, source = "The article of 2018", f"{published.source()}."
    return Section("article", name, source, blocks if shown else [], folded=True)
