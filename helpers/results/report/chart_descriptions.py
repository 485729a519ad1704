"""Describe the charts in words, for screen readers."""

from collections.abc import Iterable

import pandas as pd

from helpers.record.tasks import capital
from helpers.results import by_class as by_class_numbers
from helpers.results import learning_curves, paired_test, wait_causes
from helpers.results.comparability import RANKED, marked
from helpers.results.comparison import Comparison, devices, latest_of_each, widest
from helpers.results.comparison_tables import short_number, time_text
from helpers.results.ranking import RATE, field, ordered
from helpers.results.repeated_runs import summarise, with_interval
from helpers.results.scaling import cost, over_nodes, speed, speedup_factors, step_parts


def repeats(compared: Comparison) -> str:
    """What the brackets of the tables hold."""
    numbers = summarise(compared)
    low, high = numbers["runs"].min(), numbers["runs"].max()
    if not _repeated(compared):
        return (
            "Brackets hold the minimum and maximum of the rounds; all other figures are of one run."
        )
    count = str(low) if low == high else f"{low} to {high}"
    return (
        f"Figures are the median of {count} runs. Brackets hold, for images/s, the 95 % interval "
        "of the median of all rounds and the median of each run; for other figures, the minimum "
        "and maximum over the runs."
    )


def shown(compared: Comparison) -> str:
    """Which run a single run's figures come from; empty if none was repeated."""
    if not _repeated(compared):
        return ""
    seeds = {entry.content["recipe"]["seed"] for entry in latest_of_each(compared.finished)}
    seed = f" (seed {seeds.pop()})" if len(seeds) == 1 and len(_seeds(compared)) > 1 else ""
    return f"With repeated runs, the last is shown{seed} unless a figure says that it covers all."


def _repeated(compared: Comparison) -> bool:
    numbers = summarise(compared)
    return not numbers.empty and bool(numbers["runs"].max() > 1)


def _seeds(compared: Comparison) -> set[int]:
    return {entry.content["recipe"]["seed"] for entry in compared.finished}


def throughput(compared: Comparison) -> str:
    return _described(
        "Images per second",
        (
            f"{_timed(row)} {short_number(row['images_per_second'])} from files, "
            f"{short_number(row['synthetic_images_per_second'])} synthetic"
            for _, row in ordered(compared).iterrows()
        ),
    )


def placed(compared: Comparison) -> str:
    return _described(
        "Training time by framework and number of devices, with the times published in 2018",
        (f"{_timed(row)} {time_text(row['seconds'])}" for _, row in summarise(compared).iterrows()),
    )


def scaling(compared: Comparison) -> str:
    if not speed.several(compared):
        return ""
    numbers = speed.numbers(compared)
    return _described(
        "Lines of throughput and parallel efficiency against devices",
        (
            f"{_timed(row)} {100 * row['efficiency']:.0f} %"
            for _, row in numbers[numbers["devices"] > numbers["base"]].iterrows()
        ),
    )


def factors(compared: Comparison) -> str:
    return _described(
        "Columns of the hardware efficiency up and the statistical efficiency down, by devices",
        (said.rstrip(".") for said in speedup_factors.sentences(compared)),
    )


def shared_hardware(compared: Comparison) -> str:
    """What devices that share something do not show; empty where all have their own."""
    found = speedup_factors.numbers(compared)
    if found.empty or found["kind"].isin(RANKED).all():
        return ""
    return (
        " Devices that share a CPU's cores, GPUs or a machine say nothing of hardware by their "
        "hardware efficiency; their statistical efficiency is that of any devices."
    )


def steps(compared: Comparison) -> str:
    found = step_parts.table(compared)
    return _described(
        "Bars of a step's parts in ms, lowest to highest; the table has them too",
        (
            f"{run} " + ", ".join(f"{part} {text}" for part, text in row.items())
            for run, row in found.iterrows()
        ),
    )


def iterations(compared: Comparison) -> str:
    return _described(
        "Bars of an iteration in ms by number of nodes; the table has them too",
        (
            f"{run} own work {row['own work']}, all-reduce {row['all-reduce']}"
            for run, row in over_nodes.table(compared).iterrows()
        ),
    )


def by_devices(compared: Comparison, across: str) -> str:
    metric = compared.metric
    ends = learning_curves.time_to(compared)
    return _described(
        f"Validation {metric.short} against {across}, a line a number of devices; best values",
        (f"{row['run']} {metric.text(row['best'])}" for row in ends),
    )


def pareto(compared: Comparison) -> str:
    points = cost.pareto(compared)
    if points.empty:
        return ""
    what = "cost" if points["what"].iloc[0] == "money" else "energy in Wh"
    return _described(
        f"Points of the time to the target against {what}; nothing that ranks is better in both "
        "than those on the line",
        (
            f"{_timed(row)} {time_text(row['seconds'])} and {short_number(row['cost'])}"
            f"{', on the line' * bool(row['front'])}"
            for _, row in points.iterrows()
        ),
    )


def first(compared: Comparison) -> str:
    """The description of the chart next to the answer."""
    rows, metric = field(compared), compared.task.metric
    if not rows.empty:
        rates = (f"{_timed(row)} {short_number(row[RATE])}" for _, row in rows.iterrows())
        return _described("Images per second on files", rates)
    numbers = summarise(compared).dropna(subset=[metric.figure])
    return _described(
        capital(metric.of_test),
        (f"{_timed(row)} {metric.text(row[metric.figure])}" for _, row in numbers.iterrows()),
    )


def curves(compared: Comparison, across: str = "epochs") -> str:
    clock = across == "seconds"
    metric, parts = compared.metric, []
    for entry in widest(compared.entries):
        epochs = learning_curves.history(entry)
        if not epochs.empty:
            end = epochs.iloc[-1]
            parts.append(
                f"{entry.timed if clock else entry.run} ends after {time_text(end['clock'])} with "
                f"validation loss {end['valid_loss']:.3f} and {metric.short} "
                f"{metric.text(end[metric.of_epoch])}"
            )
    return _described(f"Losses and validation {metric.short} against {across}", parts)


def by_class(compared: Comparison) -> str:
    task, metric = compared.task, compared.task.metric
    parts = []
    for entry in widest(compared.finished):
        parts.append(f"{entry.run} {with_interval(*metric.of(entry.content['test']), metric.text)}")
    return _described(
        f"Test {metric.short} per {task.one} with 95 % intervals; the table below has the numbers. "
        f"{task.wholes}",
        parts,
    )


def left_out(compared: Comparison) -> str:
    """The findings that are in the table but not in the mean; empty if all are."""
    names = dict.fromkeys(
        name
        for entry in widest(compared.finished)
        for name in by_class_numbers.rows(entry)
        if name not in entry.content["test"].get("in_mean", [name])
    )
    if not names:
        return ""
    why = "because of too few positive or negative test images"
    return f"Not in the mean, {why}: {', '.join(names)}. "


def uncertainty(compared: Comparison) -> str:
    """What the metric's intervals include and leave out."""
    text = (
        f"{capital(compared.task.metric.short)} intervals are 95 %, over the test part's "
        f"{by_class_numbers.drawn(compared)}. They do not include how much another run, with other "
        "initial weights or in another order, would differ"
    )
    if not _repeated(compared):
        return f"{text}, which single runs cannot show."
    if len(_seeds(compared)) == 1:
        return f"{text}. The range over runs, all of one seed, shows only what a seed leaves open."
    samples = [entry.content["test"].get("sample") for entry in compared.finished]
    if None not in samples and len(set(samples)) == 1:
        return f"{text}. The range over a framework's runs shows that."
    return (
        f"{text}. The range over a framework's runs shows that, and the effect of other test "
        "images too, because the seed also decides the split."
    )


def differences(compared: Comparison) -> str:
    """How the table of paired differences is made, and how to read it."""
    base, metric = paired_test.reference(compared), compared.task.metric
    if base is None:
        return ""
    found = paired_test.differences(compared)
    place = "the lower" if (found["pairs"] > 0).sum() == 2 else "in the middle"
    text = (
        f"Each run minus {base}, whose {metric.whole} is {place}, on the same images. "
        "All are resampled with the same draws, so an easy or hard test part affects all alike "
        "and cancels out. "
    )
    if found["pairs"].max() > 1:
        text += (
            f"Repeats are paired and their differences averaged (the {metric.short} shown is a "
            f"median); the interval covers both {by_class_numbers.drawn(compared)} and runs. "
        )
    else:
        text += "It compares these trained networks: with another seed, the order may be reversed. "
    return (
        f"{text}The intervals hold at 95 % for all rows together: among equals, chance makes one "
        "significantly different in one report in twenty."
    )


def shares(compared: Comparison) -> str:
    found = wait_causes.table(compared)
    return _described(
        "Shares of an epoch with the minimum and maximum of the rounds; the table has them too",
        (
            f"{run} " + ", ".join(f"{name} {text}" for name, text in row.items())
            for run, row in found.iterrows()
        ),
    )


def energy(compared: Comparison) -> str:
    numbers = summarise(compared).dropna(subset=["images_per_joule"])
    return _described(
        "Images trained per joule",
        (
            f"{row['label']} on {devices(row['devices'])} {row['images_per_joule']:.3g}"
            for _, row in numbers.iterrows()
        ),
    )


def _timed(row: pd.Series) -> str:
    """A row's name, with the marks that say why its times are not comparable."""
    return marked(f"{row['label']} on {devices(row['devices'])}", row["marks"])


def _described(what: str, parts: Iterable[str]) -> str:
    return f"{what}: {'; '.join(parts)}."
