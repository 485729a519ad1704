"""Assemble the report's sections of charts, tables and sentences, in order.

The page and ``report.md`` are made of the same functions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helpers.results import (
    by_class,
    caveats,
    charts,
    comparison_tables,
    conclusions,
    fairness_tables,
    learning_curves,
    machine_tables,
    paired_test,
    published,
    scaling,
    waits,
)
from helpers.results.charts import Chart
from helpers.results.comparison import Comparison
from helpers.results.tables import Table


@dataclass(frozen=True)
class Texts:
    """Sentences, one per line."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Utilisation:
    """The monitor's chart, which the page makes interactive."""

    compared: Comparison
    title: str = "What the devices did"
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


def title(compared: Comparison) -> str:
    """The title of the whole report: what was trained."""
    recipes = [entry.content["recipe"] for entry in compared.entries if entry.task]
    names = dict.fromkeys(str(recipe["name"]) for recipe in recipes)
    trained = "CheXNet" if published.belong(compared) else " and ".join(names)
    return f"{trained}, framework against framework"


def sections(compared: Comparison) -> list[Section]:
    """Every section with something to show, in the order in which a reader asks."""
    on_gpus = any(entry.content["devices"]["kind"] == "gpu" for entry in compared.finished)
    devices = "All lanes have the same axes, and time starts with the first epoch. " + (
        "100 % only means that the GPU was never without a kernel, not that it was full."
        if on_gpus
        else "The lanes show the host's CPU, because no GPU was used."
    )
    every: list[tuple[str, str, str, tuple[Callable[[Comparison], Block | None], ...]]] = [
        ("answer", "All runs", "", (comparison_tables.runs, _known)),
        ("time", "Where the seconds went", "", (charts.parts, charts.curves, charts.scaling)),
        ("timeline", "What the devices did", devices, (Utilisation,)),
        ("limits", "What limits training", "", (waits.table,)),
        (
            "fairness",
            "Is it fair",
            "",
            (_checked, fairness_tables.not_passed, machine_tables.programs),
        ),
        ("machine", "Machine and remarks", "", (machine_tables.machine, caveats.remarks)),
        (
            "more",
            "More results",
            "",
            (
                scaling.table,
                by_class.table,
                comparison_tables.resources,
                machine_tables.settings,
                _article,
            ),
        ),
    ]
    found = []
    for name, heading, lead, makers in every:
        made = [make(compared) for make in makers]
        if blocks := [block for block in made if block and not getattr(block, "empty", False)]:
            found.append(Section(name, heading, lead, blocks))
    return found


def _known(compared: Comparison) -> Texts | None:
    known = [f"{a.question}: {a.text}" for a in conclusions.answers(compared) if a.text]
    known += filter(None, [paired_test.sentence(compared)])
    return Texts("What to know", known) if known else None


def _checked(compared: Comparison) -> Texts | None:
    passed = fairness_tables.passed(compared)
    said = [passed, learning_curves.on_same_batches(compared.finished)]
    return Texts("Is it fair", [*filter(None, said)]) if passed else None


def _article(compared: Comparison) -> Table | None:
    return published.table() if published.belong(compared) and compared.finished else None
