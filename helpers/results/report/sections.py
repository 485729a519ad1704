"""Assemble the report's sections of charts, tables and sentences, in order.

The page, ``report.md`` and the notebook ``Compare.ipynb`` are made of the same functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from helpers.results import (
    by_class,
    caveats,
    charts,
    comparison_tables,
    learning_curves,
    machine_tables,
    paired_test,
    published,
    wait_causes,
)
from helpers.results.charts import Chart
from helpers.results.comparison import Comparison, latest_of_each
from helpers.results.ranking import ranked, unranked
from helpers.results.repeated_runs import shown
from helpers.results.scaling import cost, over_nodes, speed, speedup_factors, step_parts
from helpers.results.shared_settings import of_own_networks, off_the_recipe, unequal
from helpers.results.tables import Table, family_of, time_text


@dataclass(frozen=True)
class Texts:
    """Sentences, one a line."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Utilisation:
    """The monitor's chart, which the page makes interactive."""

    title: str = "Utilisation"
    note: str = (
        "Drag to zoom, double-click to go back, point to read values; or use arrows, + and −."
    )


@dataclass(frozen=True)
class Target:
    """The time to a value that a reader of the page chooses; ``table`` is of the first value."""

    title: str
    wanted: float
    table: Table


Block = Table | Chart | Texts | Utilisation | Target


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; ``data`` are the names of the CSV files that hold their numbers."""

    name: str
    title: str
    lead: str
    blocks: Sequence[Block | None]
    data: tuple[str, ...] = ()

    @property
    def shown(self) -> list[Block]:
        """The blocks that have something to show."""
        return [block for block in self.blocks if block is not None and _holds(block)]


def title(compared: Comparison) -> str:
    """The title of the whole report: what was trained."""
    recipes = [entry.content["recipe"] for entry in compared.entries if entry.task]
    names = dict.fromkeys(str(recipe["name"]) for recipe in recipes)
    trained = "CheXNet" if published.belong(compared) else " and ".join(names)
    return f"{trained}, framework against framework"


def sections(compared: Comparison) -> list[Section]:
    """Every section that has something to show."""
    made = [_how_fast, _more_devices, _how_well, _machine, _cost, _fairness, _limits, _made_with]
    found = [make(compared) for make in made]
    return [replace(section, blocks=section.shown) for section in found if section.shown]


def _holds(block: Block) -> bool:
    if isinstance(block, Table):
        return not block.empty
    return bool(block.lines) if isinstance(block, Texts) else True


def _joined(*sentences: str | None) -> str:
    """One paragraph of those sentences that there are."""
    return " ".join(filter(None, sentences))


def _how_fast(compared: Comparison) -> Section:
    lead = (
        "Frameworks are compared by images per second when training on files. Synthetic data stay "
        "in memory, so the difference is what loading costs."
    )
    comparable = published.belong(compared)
    blocks: list[Block | None] = [
        charts.throughput(compared),
        comparison_tables.training(compared),
        published.training() if comparable else None,
        machine_tables.peak(compared),
        published.synthetic() if comparable else None,
        charts.placed(compared),
    ]
    return Section(
        "speed",
        "How fast",
        _joined(lead, unequal(compared), unranked(compared)),
        blocks if compared.finished else [],
        ("runs", "repeats", "published"),
    )


def _more_devices(compared: Comparison) -> Section:
    several, tried = speed.several(compared), speedup_factors.several(compared)
    sharing = speed.sharing(compared)
    lead = (
        "Time to a target = images needed / images per second. So what more devices win is their "
        "hardware efficiency, how many times the images a second, over their statistical "
        "efficiency, how many times the images were needed (less is better). Both count until the "
        "target, with the first step and validation, so the hardware efficiency is not the ratio "
        "of the throughputs in the tables."
    )
    blocks: list[Block | None] = [
        Texts("In words", speedup_factors.sentences(compared)),
        charts.factors(compared),
        speedup_factors.table(compared),
        charts.scaling(compared),
        speed.table(compared),
        sharing,
        *_steps(compared),
    ]
    if not several and not tried and sharing.empty:
        one = (
            "No framework has uninterrupted runs on several numbers of devices. "
            "Run 'rosetta run --devices 1,2' to add scaling."
        )
        blocks.append(Texts("Scaling", [one]))
    return Section(
        "scaling",
        "What more devices bring",
        _joined(lead, unranked(compared)),
        blocks if compared.finished else [],
        ("scaling", "split", "step_parts"),
    )


def _steps(compared: Comparison) -> list[Block | None]:
    """Where a step goes, where ranks measured it or there are several numbers of devices."""
    found = step_parts.numbers(compared)
    if found.empty or (found["devices"].nunique() == 1 and not found["ranks"].any()):
        return []
    return [
        charts.steps(compared),
        step_parts.table(compared),
        Texts("Not among them", step_parts.left_out(compared)),
        Texts("What the ranks wait for", step_parts.sentences(compared)),
        charts.iterations(compared),
        over_nodes.table(compared),
        Texts("Model of more nodes", over_nodes.expected(compared)),
    ]


def _how_well(compared: Comparison) -> Section:
    task, wanted = compared.task, learning_curves.target(compared)
    blocks: list[Block | None] = [
        *(charts.curves(compared, across) for across in ("epochs", "seconds", "images")),
        *(charts.devices_against(compared, across) for across in ("time", "images")),
        learning_curves.targets_table(compared),
        None
        if wanted is None
        else Target(
            f"Time to a chosen {compared.metric.short}", wanted, learning_curves.table(compared)
        ),
        charts.by_class(compared),
        by_class.table(compared),
        by_class.confusions(compared),
        paired_test.table(compared),
    ]
    lead = _joined(
        "Same images, same learning rate; but the networks come from the recipe's custom code, and "
        "each starts from weights that its framework drew, so the curves need not lie close "
        "together. "
        if of_own_networks(compared.finished)
        else "The curves should lie close together: same weights, same images, same learning rate. "
        f"The test part was never seen in training; {_guessing(compared)}",
        off_the_recipe(compared),
        shown(compared),
    )
    some = any(entry.content.get("epochs") for entry in compared.entries)
    files = ("epochs", "targets", task.file, "confusions", "paired")
    return Section("learning", "How well it learnt", lead, blocks if some else [], files)


def _guessing(compared: Comparison) -> str:
    metric = compared.task.metric
    chances = by_class.chances([entry for entry in compared.entries if entry.task])
    said = [f"{metric.plain(chance)} is random guessing" for chance in chances]
    return ", ".join([*said, f"{metric.plain(1.0)} is perfect."])


def targets(compared: Comparison) -> list[dict[str, Any]]:
    """For the page's time to a chosen value: each run's epochs as [epoch, clock, value, time]."""
    rows, column, race = [], compared.metric.of_epoch, ranked(compared)
    for entry in latest_of_each(compared.finished):
        known = learning_curves.history(entry).dropna(subset=[column])
        figures = known[["epoch", "clock", column]].itertuples(index=False)
        steps = [
            [int(epoch), round(float(clock), 3), round(float(value), 4), time_text(clock)]
            for epoch, clock, value in figures
        ]
        shown = {"run": entry.timed, "of": family_of(entry.label) or "", "on": str(entry.devices)}
        rows.append(shown | {"ranks": entry in race, "epochs": steps})
    return rows


def _machine(compared: Comparison) -> Section:
    on_gpus = any(entry.content["devices"]["kind"] == "gpu" for entry in compared.finished)
    lead = _joined(
        "The same axes for every framework, from the start of the first epoch: a longer lane is a "
        "slower run, a valley is a device waiting.",
        "100 % only means that the GPU was never without a kernel, not that it was full."
        if on_gpus
        else "The lanes show the host's CPU, because no GPU was used.",
        shown(compared),
    )
    blocks = [
        Utilisation(),
        charts.attribution(compared),
        wait_causes.table(compared),
        Texts("In words", wait_causes.sentences(compared)),
    ]
    return Section("devices", "What the devices did", lead, blocks, ("runs", "attribution"))


def _cost(compared: Comparison) -> Section:
    lead = (
        "Energy, memory and time to the first step, as far as they were measured; money only at "
        "the price that was given for a machine's hour."
    )
    energy = cost.energy(compared)
    blocks: list[Block | None] = [
        charts.pareto(compared),
        cost.table(compared),
        charts.energy(compared),
        energy,
        Texts("Energy" if energy.empty else "Runs without energy", cost.no_energy(compared)),
    ]
    return Section("cost", "What it costs", lead, blocks if compared.finished else [], ("cost",))


def _fairness(compared: Comparison) -> Section:
    lead = (
        "The fairness check compares what each run used and computed with one float64 reference. "
        "A run that failed a check is marked as not comparable wherever its time is shown. "
        "A run that trained something else than the recipe is marked as trained differently. "
        "With repeated runs, the worst result of each check is shown."
    )
    blocks: list[Block | None] = [
        comparison_tables.fairness(compared),
        Texts("How each program was executed", comparison_tables.executions(compared)),
        Texts("What was switched on to be fast", comparison_tables.switches(compared)),
        comparison_tables.reasons(compared),
    ]
    return Section("fairness", "Is it fair", lead, blocks, ("fairness",))


def _limits(compared: Comparison) -> Section:
    about = published.notes() if published.belong(compared) else published.scaling_notes(compared)
    blocks: list[Block | None] = [
        caveats.remarks(compared),
        comparison_tables.state(compared),
        Texts("About the published figures", about),
    ]
    lead = "What is missing or cannot be compared, and why."
    return Section("limits", "What this does not show", lead, blocks)


def _made_with(compared: Comparison) -> Section:
    blocks = [
        machine_tables.cards(compared),
        machine_tables.against(compared),
        machine_tables.hardware(compared),
        machine_tables.versions_table(compared),
    ]
    lead = "What the numbers were measured on, and with which versions."
    return Section("made-with", "Machine and versions", lead, blocks, ("versions",))
