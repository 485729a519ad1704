"""Read the results on the test images for each class or finding."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from helpers.record import tasks
from helpers.results.comparison import Comparison, Entry, widest

MOST = 20
"""The maximum number of classes in the chart and of names in a remark."""


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
        task, data = tasks.of(content["recipe"]), content.get("data", {})
        outputs = content.get("test", {}).get(task.outputs) or data.get("classes") or []
        found.add(task.chance(len(outputs)))
    return sorted(chance for chance in found if chance is not None)


def not_in_mean(compared: Comparison) -> str:
    """Which findings are not in the mean; empty if all are."""
    odd = {
        name: None
        for entry in widest(compared.finished)
        for name in rows(entry)
        if name not in entry.content["test"].get("in_mean", [name])
    }
    why = "because of too few positive or negative test images"
    return f"The mean leaves these out, {why}: {', '.join(odd)}." if odd else ""


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
