"""Assemble the report's section on learning: curves, targets, classes and pairs of runs."""

from typing import Any

from helpers.results import by_class, charts, learning_curves, paired_test, published
from helpers.results.charts.style import family_of
from helpers.results.comparison import Comparison, latest_of_each
from helpers.results.comparison_tables import time_text
from helpers.results.ranking import ranked
from helpers.results.report import chart_descriptions
from helpers.results.report.blocks import Block, Chart, Live, Section, Table, joined
from helpers.results.shared_settings import of_own_networks, off_the_recipe
from helpers.training.tasks import capital


def how_well(compared: Comparison) -> Section:
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
            paired_test.table(compared),
            chart_descriptions.differences(compared),
        ),
    ]
    lead = joined(
        "Same images, same learning rate; but the networks come from the recipe's custom code, and "
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
        rows.append(shown | {"ranks": entry in ranked(compared), "epochs": steps})
    return rows
