"""Assemble the report's sections on speed and on scaling."""

import pandas as pd

from helpers.results import charts, comparison_tables, machine_peak, published
from helpers.results.comparison import Comparison
from helpers.results.ranking import unranked
from helpers.results.report import chart_descriptions
from helpers.results.report.blocks import Block, Chart, Section, Table, Texts, joined
from helpers.results.scaling import over_nodes, speed, speedup_factors, step_parts
from helpers.results.shared_settings import unequal

FILES = ("runs", "repeats", "published")
"""CSV files that hold the figures of "How fast"."""


def how_fast(compared: Comparison) -> Section:
    repeats, comparable = chart_descriptions.repeats(compared), published.belong(compared)
    blocks: list[Block] = [
        Chart(
            "throughput", "Throughput", charts.throughput, chart_descriptions.throughput(compared)
        ),
        Table(
            "training",
            "Training",
            comparison_tables.training(compared),
            "Images/s on files and on synthetic data come from the same alternating rounds, "
            "without compiling and validation. The loader alone is given as times the rate of "
            "training on files. The total time covers all epochs with validation, and compiling. "
            f"{repeats} {chart_descriptions.uncertainty(compared)}",
            kind="measured",
        ),
        Table(
            "published-training",
            "Image files, published",
            published.training() if comparable else pd.DataFrame(),
            f"Not measured here: {published.source()}. 5 epochs of 87,306 images at 224 px.",
            kind="published",
        ),
        Table(
            "machine",
            "How far from the machine",
            machine_peak.table(compared),
            "Training on synthetic data, compared with a matrix product that each framework "
            "measured on the same devices, in the same rounds. Brackets after a share hold the "
            "minimum and maximum of the rounds. The product is a measured reference, not the "
            "hardware's limit. Training's FLOPs are three times those of the forward pass.",
            kind="measured",
        ),
        Table(
            "published-synthetic",
            "Synthetic data, published",
            published.synthetic() if comparable else pd.DataFrame(),
            "Not measured here; same source.",
            kind="published",
        ),
        Chart(
            "placed",
            "Measured and published times",
            charts.placed,
            chart_descriptions.placed(compared),
            "Hardware, images and versions differ: compare the pattern, not the minutes."
            if unranked(compared) is None
            else "Hardware, images and versions differ, and our times are not ranked: "
            "neither the minutes nor their pattern can be compared.",
        ),
    ]
    lead = (
        "Frameworks are compared by images per second when training on files. Synthetic data stay "
        "in memory, so the difference is what loading costs."
    )
    lead = joined(lead, unequal(compared), unranked(compared))
    return Section("speed", "How fast", lead, blocks if compared.finished else [], FILES)


def more_devices(compared: Comparison) -> Section:
    several, tried = speed.several(compared), speedup_factors.several(compared)
    sharing = speed.sharing(compared)
    lead = (
        "Time to a target = images needed / images per second. So what more devices win is their "
        "hardware efficiency, how many times the images a second, over their statistical "
        "efficiency, how many times the images were needed (less is better). Both count until the "
        "target, with the first step and validation, so the hardware efficiency is not the ratio "
        "of the throughputs in the tables."
    )
    blocks: list[Block] = []
    if compared.finished:
        blocks = [
            Texts("In words", speedup_factors.sentences(compared)),
            Chart(
                "factors",
                "The speed-up to the target, split",
                charts.factors,
                chart_descriptions.factors(compared),
                "Up by the hardware efficiency, down by the statistical efficiency: what is left "
                "is how many times as soon the target came. Images a second are those of the whole "
                "way to the target, with first step and validation."
                + chart_descriptions.shared_hardware(compared),
            ),
            Table(
                "split",
                "Hardware and statistical efficiency, for each target",
                speedup_factors.table(compared),
                "Speed-up = hardware efficiency / statistical efficiency, over the fewest devices "
                "that reached the target. Of repeats and seeds the geometric mean, so that the "
                "factors multiply, with the minimum and maximum, seed by seed where both have one "
                "run of each seed, else over all pairs of runs. No factor where any run did not "
                "reach it.",
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
                "No framework has uninterrupted runs on several numbers of devices. "
                "Run 'rosetta run --devices 1,2' to add scaling."
            )
            blocks.append(Texts("Scaling", [one]))
    lead = joined(lead, unranked(compared))
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
        Texts("Not among them", step_parts.left_out(compared)),
        Texts("What the ranks wait for", step_parts.sentences(compared)),
        *_iterations(compared),
    ]


def _iterations(compared: Comparison) -> list[Block]:
    """An iteration by number of nodes, where there are several."""
    if over_nodes.numbers(compared).empty:
        return []
    return [
        Chart(
            "iterations",
            "An iteration by number of nodes",
            charts.iterations,
            chart_descriptions.iterations(compared),
        ),
        Table(
            "iterations",
            "Own work and all-reduce, in ms",
            over_nodes.table(compared),
            "Own work: forward, backward and update. The all-reduce is what these do not hide, and "
            "the wait for slower ranks is in it. Medians, with the lowest and the highest rank.",
        ),
        Texts("Model of more nodes", over_nodes.expected(compared)),
    ]
