"""The report's contents, in order: sections of charts, tables and sentences.

The page, ``report.md`` and the notebook ``Compare.ipynb`` are made of the same functions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from helpers.results import (
    by_class,
    charts,
    comparison_tables,
    device_waits,
    learning_curves,
    limits,
    machine_cards,
    paired,
    published,
)
from helpers.results.charts.style import family_of
from helpers.results.comparability import (
    of_own_networks,
    off_the_recipe,
    ranks,
    unequal,
    unranked,
)
from helpers.results.comparison import Comparison, Entry, latest_of_each
from helpers.results.comparison_tables import time_text
from helpers.results.report import chart_descriptions
from helpers.results.scaling import cost, speed, split, step_parts
from helpers.training.tasks import capital

Draw = Callable[..., Figure | None]


@dataclass(frozen=True)
class Table:
    """``frame`` holds text only. ``kind`` is a hint to the page: plain; wide, of many columns;
    verdicts and runs, whose columns are runs or frameworks; measured and published, which stand
    beside each other."""

    name: str
    title: str
    frame: pd.DataFrame
    note: str = ""
    kind: str = "plain"


@dataclass(frozen=True)
class Chart:
    """A figure that ``draw(compared, width=inches)`` makes; ``alt`` says what it shows."""

    name: str
    title: str
    draw: Draw
    alt: str
    note: str = ""


@dataclass(frozen=True)
class Texts:
    """Sentences, one a line."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Live:
    """A part that the page makes interactive: ``utilisation`` or ``target``."""

    name: str
    title: str
    note: str = ""


Block = Table | Chart | Texts | Live


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    lead: str
    blocks: list[Block] = field(default_factory=list)
    data: tuple[str, ...] = ()
    """Names of the CSV files that hold this section's numbers."""


def title(compared: Comparison) -> str:
    """Of the whole report: what was trained."""
    recipes = [entry.content["recipe"] for entry in compared.entries if entry.task]
    names = dict.fromkeys(str(recipe["name"]) for recipe in recipes)
    trained = "CheXNet" if published.belong(compared) else " and ".join(names)
    return f"{trained}, framework against framework"


def sections(compared: Comparison) -> list[Section]:
    """Every section that has something to show."""
    made = [_speed, _scaling, _learning, _machine, _cost, _fairness, _limits, _made_with]
    found = [make(compared) for make in made]
    return [
        Section(s.name, s.title, s.lead, [b for b in s.blocks if _holds(b)], s.data)
        for s in found
        if any(_holds(block) for block in s.blocks)
    ]


def _holds(block: Block) -> bool:
    if isinstance(block, Table):
        return not block.frame.empty
    if isinstance(block, Texts):
        return bool(block.lines)
    return True


def _speed(compared: Comparison) -> Section:
    repeats, beside = chart_descriptions.repeats(compared), published.belong(compared)
    blocks: list[Block] = [
        Chart(
            "throughput", "Throughput", charts.throughput, chart_descriptions.throughput(compared)
        ),
        Table(
            "training",
            "Training on image files",
            comparison_tables.training(compared),
            "Times cover all epochs, training and validation, including tracing and autotuning in "
            "the first; images/s is that of the median epoch after it, or of the only one. "
            f"{repeats} {chart_descriptions.uncertainty(compared)}",
            kind="measured",
        ),
        Table(
            "published-training",
            "Image files, published",
            published.training() if beside else pd.DataFrame(),
            f"Not measured here: {published.source()}. 5 epochs of 87,306 images at 224 px.",
            kind="published",
        ),
        Table(
            "synthetic",
            "Training on synthetic data",
            comparison_tables.synthetic(compared),
            "Compute and all-reduce: nothing is loaded or validated. ~ marks a time scaled up to "
            "the run's number of training images from a shorter measurement. " + repeats,
            kind="measured",
        ),
        Table(
            "published-synthetic",
            "Synthetic data, published",
            published.synthetic() if beside else pd.DataFrame(),
            "Not measured here; same source.",
            kind="published",
        ),
        Chart(
            "placed",
            "Beside the published times",
            charts.placed,
            chart_descriptions.placed(compared),
            "Hardware, images and versions differ: compare the pattern, not the minutes."
            if unranked(compared) is None
            else "Hardware, images and versions differ, and the times measured here rank nothing: "
            "neither the minutes nor their pattern can be compared.",
        ),
    ]
    article = ", as in the article this repeats" if beside else ""
    lead = (
        f"Two tables{article}: images read from files, and synthetic data "
        "in memory. The two are measured minutes apart. So the cost of loading is shown below, "
        "among the shares of an epoch, which are measured in alternating rounds."
    )
    lead = _joined(lead, unequal(compared), unranked(compared))
    return Section("speed", "How fast", lead, blocks if compared.finished else [], _SPEED)


def _joined(*sentences: str | None) -> str:
    return " ".join(filter(None, sentences))


_SPEED = ("runs", "repeats", "published")


def _scaling(compared: Comparison) -> Section:
    several, tried = speed.several(compared), split.several(compared)
    sharing = speed.sharing(compared)
    lead = (
        "Time to a target = images needed / images per second. So what more devices win is a "
        "hardware factor, how many times the images a second, over a learning factor, how many "
        "times the images were needed."
    )
    blocks: list[Block] = []
    if compared.finished:
        blocks = [
            Texts("In words", split.sentences(compared)),
            Chart(
                "factors",
                "The speed-up to the target, split",
                charts.factors,
                chart_descriptions.factors(compared),
                "Up by the hardware factor, down by the learning factor: what is left is how many "
                "times as soon the target came. Images a second are those of the whole way to the "
                "target, with first step and validation."
                + chart_descriptions.shared_hardware(compared),
            ),
            Table(
                "split",
                "Hardware and learning, for each target",
                split.table(compared),
                "Speed-up = hardware / learning, over the fewest devices that reached the target. "
                "Of repeats and seeds the geometric mean, so that the factors multiply, with the "
                "least and the most that the runs allow. No factor where any run did not reach it.",
                kind="wide",
            ),
            Chart("scaling", "Throughput", charts.scaling, chart_descriptions.scaling(compared)),
            Table(
                "scaling",
                "Speed-up and efficiency",
                speed.table(compared),
                "Efficiency is the share of the ideal, the images/s of the fewest devices times "
                "the ratio of devices; against one node, that of one node times their number. "
                + chart_descriptions.repeats(compared),
            ),
            Table(
                "sharing",
                "Devices that share something",
                sharing,
                "Apart from the others and not ranked: these show that the parallel way works, not "
                "how fast it is.",
            ),
            *_steps(compared),
        ]
        if not several and not tried and sharing.empty:
            one = (
                "No framework has uninterrupted runs on several numbers of GPUs. "
                "'compare --devices 1,2' adds scaling if there are that many."
            )
            blocks.append(Texts("Scaling", [one]))
    lead = _joined(lead, unranked(compared))
    files = ("scaling", "split", "step_parts")
    return Section("scaling", "What more devices bring", lead, blocks, files)


def _steps(compared: Comparison) -> list[Block]:
    """Where a step goes, where ranks measured it or there are several numbers of devices."""
    found = step_parts.numbers(compared)
    if found.empty or (found["devices"].nunique() == 1 and not found["ranks"].any()):
        return []
    return [
        Chart("steps", "Where a step goes", charts.steps, chart_descriptions.steps(compared)),
        Table(
            "step-parts",
            "A step's parts, in ms",
            step_parts.table(compared),
            "Measured: each rank timed its own steps; the median, the lowest and the highest rank. "
            "By ablation: loading and then the all-reduce were left out, in rounds; the minimum "
            "and maximum of the rounds, and the update is in compute. The all-reduce is what "
            "compute did not hide.",
        ),
        Texts("What the ranks wait for", step_parts.sentences(compared)),
    ]


def _learning(compared: Comparison) -> Section:
    blocks: list[Block] = [
        Chart("curves", "Against epochs", charts.curves, chart_descriptions.curves(compared)),
        Chart(
            "clock",
            "Against time",
            charts.clock_curves,
            chart_descriptions.curves(compared, "seconds"),
        ),
        Chart(
            "images",
            "Against images",
            charts.image_curves,
            chart_descriptions.curves(compared, "images"),
        ),
        Chart(
            "devices-time",
            "More devices, against time",
            charts.devices_against_time,
            chart_descriptions.by_devices(compared, "time"),
        ),
        Chart(
            "devices-images",
            "More devices, against images",
            charts.devices_against_images,
            chart_descriptions.by_devices(compared, "images"),
            "Where lines part, more devices need more images.",
        ),
    ]
    task, metric = compared.task, compared.task.metric
    reached = "The end of the first epoch that reached it; nothing is interpolated between epochs."
    blocks.append(
        Table(
            "targets",
            "Time and images to the recipe's targets",
            learning_curves.targets_table(compared),
            f"{reached} Images are those trained on until then. Of several runs the median of "
            "those that reached it, with the minimum and maximum.",
            kind="wide",
        )
    )
    if learning_curves.target(compared) is not None:
        blocks.append(Live("target", f"Time to a chosen {compared.metric.short}", reached))
    each = f"{capital(metric.short)} per {task.one}"
    blocks += [
        Chart(
            task.file,
            each,
            charts.by_class,
            chart_descriptions.by_class(compared),
            "The published means, on 1 V100 (small marks) and on 4 (large), are from real X-rays."
            if published.belong(compared)
            else by_class.left_out(compared).strip(),
        ),
        Table(
            task.file,
            f"{each}, 95 % interval",
            by_class.table(compared),
            by_class.left_out(compared)
            + chart_descriptions.left_out(compared)
            + chart_descriptions.uncertainty(compared),
            kind="runs",
        ),
        Table(
            "confusions",
            "Most often confused",
            by_class.confusions(compared),
            "The share of the class's test images, and how many that is; - where a pair is not "
            "among the run's ten most frequent.",
            kind="runs",
        ),
        Table(
            "paired",
            f"{capital(metric.whole)}, on the same test images",
            paired.table(compared),
            chart_descriptions.differences(compared),
        ),
    ]
    lead = _joined(
        "Same images, same learning rate; but the networks come from the recipe's own code, and "
        "each starts from weights that its framework drew, so the curves need not lie close "
        "together. "
        if of_own_networks(compared.finished)
        else "The curves should lie close together: same weights, same images, same learning rate. "
        f"The test part was never seen in training; {_guessing(compared)}",
        off_the_recipe(compared),
        chart_descriptions.shown(compared),
    )
    some = any(entry.content.get("epochs") for entry in compared.entries)
    files = ("epochs", "targets", task.file, "confusions", "paired")
    return Section("learning", "How well it learnt", lead, blocks if some else [], files)


def _guessing(compared: Comparison) -> str:
    metric = compared.task.metric
    chances = by_class.chances([entry for entry in compared.entries if entry.task])
    said = [f"{metric.plain(chance)} is random guessing" for chance in chances]
    return ", ".join([*said, f"{metric.plain(1.0)} is perfect."])


def _machine(compared: Comparison) -> Section:
    on_gpus = any(entry.content["devices"]["kind"] == "gpu" for entry in compared.finished)
    lead = _joined(
        "The same axes for every framework, from the start of the first epoch: a longer lane is a "
        "slower run, a valley is a device waiting.",
        "100 % only means that the GPU was never without a kernel, not that it was full."
        if on_gpus
        else "The lanes show the host's CPU, because no GPU was used.",
        chart_descriptions.shown(compared),
    )
    blocks: list[Block] = [
        Live(
            "utilisation",
            "Utilisation",
            "Drag to zoom, double-click to go back, point to read values; or use arrows, + and −.",
        ),
        Chart(
            "attribution",
            "Where the time went",
            charts.attribution,
            chart_descriptions.shares(compared),
        ),
        Table(
            "attribution",
            "Shares of an epoch",
            device_waits.table(compared),
            "Measured by leaving out loading and then the all-reduce, in alternating rounds; "
            "brackets hold the minimum and maximum. A share below zero means no measurable wait. "
            "Invalid means that no share can be computed; the sentences below say why.",
        ),
        Texts("In words", comparison_tables.sentences(compared)),
    ]
    return Section("devices", "What the devices did", lead, blocks, ("runs", "attribution"))


def _cost(compared: Comparison) -> Section:
    priced = compared.prices is not None
    lead = (
        "Energy, memory and time to the first step, as far as they were measured; money only at "
        "the price that was given for a machine's hour."
    )
    energy = comparison_tables.energy(compared)
    blocks: list[Block] = [
        Chart("pareto", "Time against cost", charts.pareto, chart_descriptions.pareto(compared)),
        Table(
            "cost",
            "What a run costs",
            cost.table(compared),
            "Energy is the GPUs' while training; until the target it is the same share of it as of "
            "the images. The first step holds what is compiled or tuned in it. Memory is that of "
            "the fullest GPU, whoever used it. "
            + (
                "Money is for the time of training and validation, on all machines of the run."
                if priced
                else "With 'compare report --price 12.24/h' money is shown too."
            ),
        ),
        Chart("energy", "Energy", charts.energy, chart_descriptions.energy(compared)),
        Table("energy", "Energy of the GPUs while training", energy),
        Texts(
            "Energy" if energy.empty else "Runs without energy",
            comparison_tables.no_energy(compared),
        ),
    ]
    return Section("cost", "What it costs", lead, blocks if compared.finished else [], ("cost",))


def _fairness(compared: Comparison) -> Section:
    lead = (
        "The certificate compares what each run used and computed with one float64 reference. "
        "A run that failed a check is marked as not comparable wherever its time is shown. "
        "With repeated runs, the worst result of each check is shown."
    )
    blocks: list[Block] = [
        Table("fairness", "Certificate", comparison_tables.fairness(compared), kind="verdicts"),
        Table("reasons", "Remarks on single checks", _reasons(compared.entries)),
    ]
    return Section("fairness", "Is it fair", lead, blocks, ("fairness",))


def _reasons(entries: Sequence[Entry]) -> pd.DataFrame:
    """The certificate's remarks, each with the runs that share it."""
    said: dict[tuple[str, str, str], dict[str, None]] = {}
    checked = {entry.run: None for entry in entries if "fairness" in entry.content}
    for entry in entries:
        for check in entry.content.get("fairness", {}).get("checks", []):
            if check.get("reason"):
                key = (check["check"], check["verdict"], check["reason"])
                said.setdefault(key, {})[entry.run] = None
    rows = [
        {
            "check": check,
            "verdict": verdict,
            "reason": reason,
            "runs": "every run" if 1 < len(runs) == len(checked) else "; ".join(runs),
        }
        for (check, verdict, reason), runs in said.items()
    ]
    return pd.DataFrame(rows, columns=["check", "verdict", "reason", "runs"]).set_index("check")


def _limits(compared: Comparison) -> Section:
    lead = "What is missing or cannot be compared, and why."
    blocks: list[Block] = [
        Table("remarks", "Not comparable, or missing", limits.remarks(compared)),
        Table(
            "state",
            "How every run ended",
            comparison_tables.state(compared),
            "Run time, in minutes and seconds, covers the whole run, as the terminal shows it: the "
            "start of its kernel, the certificate, training, the test and the measurements after "
            "it. For a notebook run by hand it starts with its record.",
        ),
        Texts(
            "About the published figures",
            published.notes() if published.belong(compared) else [],
        ),
    ]
    return Section("limits", "What this does not show", lead, blocks)


def _made_with(compared: Comparison) -> Section:
    lead = "What the numbers were measured on, and with which versions."
    blocks: list[Block] = [
        Table("machines", "Machines", machine_cards.cards(compared), kind="wide"),
        Table(
            "against",
            "The same on another machine",
            machine_cards.against(compared),
            "Images/s from files, of equal notebooks, settings and numbers of devices. "
            "Repeats by their median, minimum and maximum.",
        ),
        Table("hardware", "Machine, recipe, data", comparison_tables.hardware(compared)),
        Table("versions", "Versions", comparison_tables.versions(compared), kind="runs"),
    ]
    return Section("made-with", "Machine and versions", lead, blocks, ("versions",))


def targets(compared: Comparison) -> list[dict[str, Any]]:
    """For the page's time to a chosen value: each run's epochs as [epoch, clock, value, time]."""
    rows, column = [], compared.metric.of_epoch
    for entry in latest_of_each(compared.finished):
        epochs = learning_curves.history(entry)
        known = epochs.dropna(subset=[column])
        figures = known[["epoch", "clock", column]].itertuples(index=False)
        steps = [
            [int(epoch), round(float(clock), 3), round(float(value), 4), time_text(clock)]
            for epoch, clock, value in figures
        ]
        shown = {"run": entry.timed, "of": family_of(entry.label) or "", "on": str(entry.devices)}
        rows.append(shown | {"ranks": ranks(entry.content), "epochs": steps})
    return rows
