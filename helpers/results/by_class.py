"""Read the results on the test images for each class or finding."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from helpers.record import tasks
from helpers.results.comparison import Comparison, Entry, widest

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
    """Which classes are not shown, and which findings are not in the mean; empty if all are."""
    task, entries, said = compared.task, widest(compared.finished), []
    every = dict.fromkeys(name for entry in entries for name in rows(entry))
    if len(every) > MOST:
        said.append(
            f"Only the {MOST} of {len(every):,} {task.outputs} with the lowest "
            f"{task.metric.short} are shown."
        )
    in_mean = [entry.content["test"].get("in_mean", every) for entry in entries]
    if odd := [name for name in every if not all(name in of for of in in_mean)]:
        why = "because of too few positive or negative test images"
        said.append(f"The mean leaves these out, {why}: {', '.join(odd)}.")
    return " ".join(said)


def limits(content: dict[str, Any]) -> list[str]:
    """What a finished run's test cannot show."""
    test, task = content["test"], tasks.of(content["recipe"])
    said: dict[str, list[str]] = {}
    for row in test[task.outputs]:
        if row.get("reason") or row[task.metric.name] is None:
            said.setdefault(row.get("reason") or task.missing, []).append(row[task.one])
    return [
        f"{', '.join(found[:MOST])}{f' and {more:,} more' if more > 0 else ''}: {reason}"
        for reason, found in said.items()
        for more in [len(found) - MOST]
    ]
