"""Assemble the report's sections of charts, tables and sentences, in order.

The page and ``report.md`` are made of the same functions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from helpers.results import (
    by_class,
    caveats,
    charts,
    comparison_tables,
    execution_modes,
    fairness_tables,
    learning_curves,
    loader_supply,
    machine_peak,
    machine_tables,
    paired_test,
    published,
    wait_causes,
)
from helpers.results.charts import Chart
from helpers.results.comparison import Comparison, widest
from helpers.results.repeated_runs import shown
from helpers.results.scaling import resources, speed, speedup_factors
from helpers.results.shared_settings import of_own_networks
from helpers.results.tables import Table


@dataclass(frozen=True)
class Texts:
    """Sentences, one a line."""

    title: str
    lines: Sequence[str]

    @property
    def empty(self) -> bool:
        return not self.lines


@dataclass(frozen=True)
class Utilisation:
    """The monitor's chart, which the page makes interactive."""

    title: str = "Utilisation"
    note: str = (
        "Drag to zoom, double-click to zoom out and point to read values, or use the arrow keys, "
        "+ and −."
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
    blocks: Sequence[Block]
    data: tuple[str, ...] = ()
    folded: bool = False


def title(compared: Comparison) -> str:
    """The title of the whole report: what was trained."""
    recipes = [entry.content["recipe"] for entry in compared.entries if entry.task]
    names = dict.fromkeys(str(recipe["name"]) for recipe in recipes)
    trained = "CheXNet" if published.belong(compared) else " and ".join(names)
    return f"{trained}, framework against framework"


def sections(compared: Comparison) -> list[Section]:
    """Every section that has something to show, in the order in which a reader asks."""
    made = [
        _runs, _how_fast, _fairness, _waiting, _more_devices, _how_well, _cost, _machine, _limits,
        _article,
    ]  # fmt: skip
    found = [make(compared) for make in made]
    return [section for section in found if section.blocks]


def _shown(blocks: Iterable[Block | None]) -> list[Block]:
    """The blocks that have something to show."""
    return [block for block in blocks if block is not None and not getattr(block, "empty", False)]


def _folded(table: Table) -> Table:
    return replace(table, folded=True)


def _joined(*sentences: str | None) -> str:
    """One paragraph of those sentences that there are."""
    return " ".join(filter(None, sentences))


def _runs(compared: Comparison) -> Section:
    table = comparison_tables.runs(compared)
    return Section("runs", "All runs", "", _shown([table]), ("runs", "repeats"))


def _how_fast(compared: Comparison) -> Section:
    lead = (
        "The chart explains the rates by rounds after training. Synthetic data stay in memory, so "
        "the difference is the cost of loading. The ranking uses the epochs instead."
    )
    blocks = [charts.throughput(compared), _folded(machine_peak.table_of(compared))]
    return Section("speed", "How fast", lead, _shown(blocks) if compared.finished else [])


def _fairness(compared: Comparison) -> Section:
    lead = (
        "The fairness check compares what each run used and computed with one float64 reference. "
        f"{fairness_tables.in_short(compared)}."
    )
    blocks: list[Block | None] = [
        fairness_tables.not_passed(compared),
        _folded(fairness_tables.passed(compared)),
        Texts("How each program was executed", fairness_tables.executions(compared)),
        Texts("What compiling brings", execution_modes.break_even(compared)),
        Texts("Performance settings", fairness_tables.switches(compared)),
    ]
    return Section("fairness", "Is it fair", lead, _shown(blocks), ("fairness",))


def _waiting(compared: Comparison) -> Section:
    on_gpus = any(entry.content["devices"]["kind"] == "gpu" for entry in compared.finished)
    lead = _joined(
        "All lanes have the same axes, and time starts with the first epoch. In a valley, a device "
        "is waiting.",
        "100 % only means that the GPU was never without a kernel, not that it was full."
        if on_gpus
        else "The lanes show the host's CPU, because no GPU was used.",
        shown(compared),
    )
    blocks = [
        Utilisation(),
        charts.attribution(compared),
        _folded(wait_causes.table(compared)),
        Texts("Runs that waited, or may have waited", wait_causes.sentences(compared)),
        loader_supply.table(compared),
        Texts("Whether faster loading pays", loader_supply.faster_loading(compared)),
    ]
    files = ("attribution", "loader")
    return Section("devices", "What the devices waited for", lead, _shown(blocks), files)


def _more_devices(compared: Comparison) -> Section:
    blocks: list[Block | None] = [
        charts.factors(compared),
        _folded(speedup_factors.table(compared)),
        charts.scaling(compared),
        speed.table(compared),
    ]
    one = (
        "No framework has uninterrupted runs on several numbers of devices with their own "
        "hardware. Run 'rosetta run --devices 1,2' to add scaling."
    )
    found = _shown(blocks) or [Texts("Scaling", [one])]
    return Section(
        "scaling",
        "What more devices bring",
        "Speed-up to a target = hardware efficiency / statistical efficiency. Hardware efficiency "
        "is the ratio of images/s. Statistical efficiency is the ratio of images needed to reach "
        "the target, so lower is better."
        if speedup_factors.several(compared)
        else "",
        found if compared.finished else [],
        ("scaling", "split"),
    )


def _how_well(compared: Comparison) -> Section:
    task, wanted = compared.task, learning_curves.target(compared)
    runs = widest(compared.finished)
    seen = {tuple(learning_curves.history(entry).get("seen", ())) for entry in runs}
    blocks: list[Block | None] = [
        charts.curves(compared, "epochs"),
        charts.curves(compared, "seconds"),
        charts.curves(compared, "images") if len(seen) > 1 else None,
        *(charts.devices_against(compared, across) for across in ("time", "images")),
        None
        if wanted is None
        else Target(
            f"Time to a chosen {compared.metric.short}", wanted, learning_curves.table(compared)
        ),
        _folded(learning_curves.targets_table(compared)),
        charts.by_class(compared),
        _folded(by_class.table(compared)),
        by_class.confusions(compared),
        paired_test.table(compared),
    ]
    lead = _joined(
        "All runs use the same images and learning rate per device. Their networks come from the "
        "recipe's custom code, and each framework draws its own initial weights, so the curves "
        "need not lie close together."
        if of_own_networks(compared.finished)
        else "The curves should lie close together: all runs of a seed use the same initial "
        "weights, images and learning rate per device.",
        learning_curves.on_same_batches(compared.finished),
        f"No run trained on the test images. {_guessing(compared)}",
    )
    some = any(entry.content.get("epochs") for entry in compared.entries)
    files = ("epochs", "targets", task.file, "confusions", "paired")
    return Section("learning", "How well it learnt", lead, _shown(blocks) if some else [], files)


def _guessing(compared: Comparison) -> str:
    metric = compared.task.metric
    chances = by_class.chances([entry for entry in compared.entries if entry.task])
    said = [f"{metric.plain(chance)} is random guessing" for chance in chances]
    return f"A {metric.whole} of " + ", ".join([*said, f"{metric.plain(1.0)} is perfect."])


def _cost(compared: Comparison) -> Section:
    energy = resources.energy(compared)
    blocks: list[Block | None] = [
        resources.table(compared),
        charts.energy(compared),
        energy,
        None if energy.empty else Texts("Runs without energy", resources.no_energy(compared)),
    ]
    found = _shown(blocks) if compared.finished else []
    return Section("resources", "What it uses", "", found, ("resources",))


def _machine(compared: Comparison) -> Section:
    blocks = [
        machine_tables.versions_table(compared),
        machine_tables.cards(compared),
        machine_tables.against(compared),
        _folded(machine_tables.hardware(compared)),
    ]
    return Section("machine", "Machine and versions", "", _shown(blocks), ("versions",))


def _limits(compared: Comparison) -> Section:
    blocks: list[Block | None] = [
        caveats.remarks(compared),
        Texts("About the published figures", published.scaling_notes(compared)),
    ]
    return Section("limits", "What this does not show", "", _shown(blocks))


def _article(compared: Comparison) -> Section:
    """The figures of 2018, for runs of the article's network and findings."""
    blocks: list[Block | None] = [
        charts.placed(compared),
        published.training(),
        published.synthetic(),
        Texts("About the published figures", published.notes()),
        Texts(*published.notebooks()),
    ]
    comparable = published.belong(compared) and compared.finished
    return Section(
        "article",
        "The article of 2018",
        f"{published.source()}.",
        _shown(blocks) if comparable else [],
        ("published",),
        folded=True,
    )
