"""Show the results on the test images for each class or finding, as rows and as tables."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from helpers.record import tasks
from helpers.record.tasks import capital
from helpers.results import tables
from helpers.results.comparison import Comparison, Entry, widest
from helpers.results.tables import Cell, Name, Table, of_run, transposed

MOST = 20
"""The maximum number of rows; of more classes, those with the worst metric are shown."""


class Row(NamedTuple):
    """A finding's or a class's metric, None where there is none, and the ends of its interval."""

    value: float | None
    low: float | None
    high: float | None


def rows(entry: Entry) -> dict[str, Row]:
    """By the name of the finding or class."""
    task = tasks.of(entry.content["recipe"])
    return {
        row[task.one]: Row(row[task.metric.name], row["low"], row["high"])
        for row in entry.content["test"][task.outputs]
    }


def whole_name(compared: Comparison) -> str:
    """``Mean``, ``All images``: the whole part's row, by no name that a finding or class has."""
    shown = {name.replace("_", " ") for entry in compared.finished for name in rows(entry)}
    name = compared.task.whole
    while any(one == name or one.startswith(f"{name}, ") for one in shown):
        name += " (the whole part)"
    return name


def whole(entry: Entry, name: str) -> dict[str, Row]:
    """The metrics of the whole part, whose row is called ``name``; those that the run has."""
    task, test = tasks.of(entry.content["recipe"]), entry.content["test"]
    first, *others = task.metrics
    found = {f"{name}, {metric.short}": Row(*metric.of(test)) for metric in others}
    return {name: Row(*first.of(test))} | {
        name: row for name, row in found.items() if row.value is not None
    }


def chances(entries: Sequence[Entry]) -> list[float]:
    """What guessing comes to, by the first metric; one value where all have as many classes.

    None of a run whose record does not yet say how many it has.
    """
    found = set()
    for content in (entry.content for entry in entries):
        task = tasks.of(content["recipe"])
        outputs = content.get("test", {}).get(task.outputs) or content.get("data", {}).get(
            "classes"
        )
        found.add(task.chance(len(outputs or [])))
    return sorted(chance for chance in found if chance is not None)


def drawn(compared: Comparison) -> str:
    """What the intervals are over: ``images`` where each stands alone."""
    tests = [entry.content["test"] for entry in compared.finished]
    images = [sum(row["images"] for row in test.get("classes", [])) for test in tests]
    alone = all(test.get("groups") == count for test, count in zip(tests, images, strict=True))
    return "images" if tests and alone else compared.task.groups


def names(compared: Comparison) -> list[str]:
    """The findings or classes to be shown, in the records' order.

    Of more than ``MOST`` those with the lowest metric, as a mean over the runs.
    """
    values: dict[str, list[float]] = {}
    for entry in widest(compared.finished):
        for name, row in rows(entry).items():
            values.setdefault(name, []).extend([] if row.value is None else [row.value])
    if len(values) <= MOST:
        return list(values)
    means = {name: sum(of) / len(of) for name, of in values.items() if of}
    worst = set(sorted(means, key=lambda name: means[name])[:MOST])
    return [name for name in values if name in worst]


def left_out(compared: Comparison) -> str:
    """How many classes are not in the tables and charts; empty if all are."""
    every = dict.fromkeys(name for entry in widest(compared.finished) for name in rows(entry))
    if len(every) <= MOST:
        return ""
    task = compared.task
    return (
        f"Only the {MOST} of {len(every):,} {task.outputs} with the lowest {task.metric.short} are "
        "shown. "
    )


def not_in_mean(compared: Comparison) -> str:
    """The findings that are in the table but not in the mean; empty if all are."""
    found = dict.fromkeys(
        name
        for entry in widest(compared.finished)
        for name in rows(entry)
        if name not in entry.content["test"].get("in_mean", [name])
    )
    if not found:
        return ""
    why = "because of too few positive or negative test images"
    return f"The mean leaves these out, {why}: {', '.join(found)}. "


def title(compared: Comparison) -> str:
    """What the table and the chart are of."""
    return f"{capital(compared.task.metric.short)} per {compared.task.one}"


def table(compared: Comparison) -> Table:
    """The metric by class with its 95 % interval: rows findings or classes, then the whole part.

    One column a framework, on its most devices; the whole on fewer is in the table of training.
    """
    text, shown, last = compared.task.metric.text, names(compared), whole_name(compared)
    columns: dict[Name | str, dict[str, Cell]] = {}
    for entry in widest(compared.finished):
        found = rows(entry)
        found = {name: found[name] for name in shown if name in found} | whole(entry, last)
        columns[of_run(entry, timed=False)] = {
            name: Cell(row.value, text, row.low, row.high) for name, row in found.items()
        }
    return tables.table(
        f"{title(compared)}, 95 % interval",
        compared.task.one,
        transposed(columns),
        note=f"{left_out(compared)}{not_in_mean(compared)}".strip(),
        folded=True,
    )


def limits(content: dict[str, Any]) -> list[str]:
    """What a finished run's test cannot show."""
    test, task = content["test"], tasks.of(content["recipe"])
    said: dict[str, list[str]] = {}
    for row in test[task.outputs]:
        if row.get("reason") or row[task.metric.name] is None:
            said.setdefault(row.get("reason") or task.missing, []).append(row[task.one])
    return [f"{_several(names)}: {reason}" for reason, names in said.items()]


def _several(names: list[str]) -> str:
    """The names, of many the first ones."""
    more = len(names) - MOST
    return ", ".join(names[:MOST]) + (f" and {more:,} more" if more > 0 else "")
