"""Assemble the report's sections of charts, tables and sentences, in order.

The page, ``report.md`` and the notebook ``Compare.ipynb`` are made of the same functions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from helpers.fairness import check_results
from helpers.results import (
    caveats,
    charts,
    comparison_tables,
    machine_cards,
    published,
    wait_causes,
)
from helpers.results.comparison import Comparison, Entry
from helpers.results.report import chart_descriptions
from helpers.results.report.blocks import Block, Chart, Live, Section, Table, Texts, joined
from helpers.results.report.learning_section import how_well
from helpers.results.report.speed_sections import how_fast, more_devices
from helpers.results.scaling import cost


def title(compared: Comparison) -> str:
    """Of the whole report: what was trained."""
    recipes = [entry.content["recipe"] for entry in compared.entries if entry.task]
    names = dict.fromkeys(str(recipe["name"]) for recipe in recipes)
    trained = "CheXNet" if published.belong(compared) else " and ".join(names)
    return f"{trained}, framework against framework"


def sections(compared: Comparison) -> list[Section]:
    """Every section that has something to show."""
    made = [how_fast, more_devices, how_well, _machine, _cost, _fairness, _limits, _made_with]
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


def _machine(compared: Comparison) -> Section:
    on_gpus = any(entry.content["devices"]["kind"] == "gpu" for entry in compared.finished)
    lead = joined(
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
            wait_causes.table(compared),
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
            "the images. The first step holds what is compiled or tuned in it. Memory is "
            "the largest use of a GPU by all its processes, or of a CPU device by its own. "
            + (
                "Money is for the time of training and validation, on all machines of the run."
                if priced
                else "With 'rosetta report --price 12.24/h' money is shown too."
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
        "The fairness check compares what each run used and computed with one float64 reference. "
        "A run that failed a check is marked as not comparable wherever its time is shown. "
        "A run that trained something else than the recipe is marked as trained differently. "
        "With repeated runs, the worst result of each check is shown."
    )
    blocks: list[Block] = [
        Table("fairness", "Fairness check", comparison_tables.fairness(compared), kind="verdicts"),
        Texts("How each program was executed", _executions(compared.finished)),
        Texts("What was switched on to be fast", _switches(compared.finished)),
        Table("reasons", "Remarks on single checks", _reasons(compared.entries)),
    ]
    return Section("fairness", "Is it fair", lead, blocks, ("fairness",))


def _executions(entries: Sequence[Entry]) -> list[str]:
    """Which frameworks ran eagerly, and which compiled their program, in one line."""
    return _who(entries, lambda training: str(training.get("execution", "")))


def _switches(entries: Sequence[Entry]) -> list[str]:
    return _who(entries, lambda training: ", ".join(training.get("switches", ())))


def _who(entries: Sequence[Entry], said: Callable[[dict[str, Any]], str]) -> list[str]:
    """What records' section ``training`` says, each time with the runs of which it is said."""
    found: dict[str, dict[str, None]] = {}
    for entry in entries:
        if how := said(entry.content.get("training", {})):
            found.setdefault(how, {})[entry.label] = None
    lines = [f"{how}: {', '.join(labels)}" for how, labels in sorted(found.items())]
    return [f"{'; '.join(lines)}."] if lines else []


def _reasons(entries: Sequence[Entry]) -> pd.DataFrame:
    """The fairness check's remarks, each with the runs that share it."""
    said: dict[tuple[str, str, str], dict[str, None]] = {}
    checked = {entry.run: None for entry in entries if "fairness" in entry.content}
    for entry in entries:
        for check in entry.content.get("fairness", {}).get("checks", []):
            if reason := check.get("variant") or check.get("reason"):
                key = (check["check"], check["verdict"], reason)
                said.setdefault(key, {})[entry.run] = None
    rows = [
        {
            "check": check,
            "verdict": check_results.shown(verdict),
            "reason": reason,
            "runs": "every run" if 1 < len(runs) == len(checked) else "; ".join(runs),
        }
        for (check, verdict, reason), runs in said.items()
    ]
    return pd.DataFrame(rows, columns=["check", "verdict", "reason", "runs"]).set_index("check")


def _limits(compared: Comparison) -> Section:
    lead = "What is missing or cannot be compared, and why."
    blocks: list[Block] = [
        Table("remarks", "Not comparable, or missing", caveats.remarks(compared)),
        Table(
            "state",
            "How every run ended",
            comparison_tables.state(compared),
            "Run time, in minutes and seconds, covers the whole run, as the terminal shows it: the "
            "start of its kernel, the fairness check, training, the test and the measurements "
            "after it. For a notebook run by hand it starts with its record.",
        ),
        Texts(
            "About the published figures",
            published.notes() if published.belong(compared) else published.scaling_notes(compared),
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
            "Medians, with their 95 % interval over the rounds.",
        ),
        Table("hardware", "Devices, recipe, data", comparison_tables.hardware(compared)),
        Table("versions", "Versions", comparison_tables.versions(compared), kind="runs"),
    ]
    return Section("made-with", "Machine and versions", lead, blocks, ("versions",))
