"""Show the results on the test images for each class or finding."""

from collections.abc import Sequence
from typing import Any

from helpers.record import tasks
from helpers.record.tasks import capital
from helpers.results import tables
from helpers.results.comparison import Comparison, Entry, widest
from helpers.results.tables import Cell, Table

MOST = 20
"""The maximum number of classes in the table, and of names in a remark."""


def chances(entries: Sequence[Entry]) -> list[float]:
    """What guessing achieves by the first metric, for each number of classes.

    Runs whose record does not give this number yet have no value.
    """
    found = set()
    for content in (entry.content for entry in entries):
        task, data = tasks.of(content["recipe"]), content.get("data", {})
        outputs = content.get("test", {}).get(task.outputs) or data.get("classes")
        if task is tasks.MULTILABEL:
            found.add(0.5)
        elif outputs:
            found.add(1 / len(outputs))
    return sorted(found)


def table(compared: Comparison) -> Table:
    """One row per finding or class, one column per framework, on its most devices.

    The table is empty for more than ``MOST`` classes; the CSV file has all, with intervals.
    """
    task, rows, odd = compared.task, dict[str, dict[str, Cell]](), dict[str, None]()
    for entry in widest(compared.finished):
        test = entry.content["test"]
        for row in test[task.outputs]:
            name = row[task.one]
            cell = Cell(row[task.metric.name], task.metric.text)
            rows.setdefault(name, {})[entry.label] = cell
            if name not in test.get("in_mean", [name]):
                odd[name] = None
    why = "because of too few positive or negative test images"
    note = f"The mean leaves these out, {why}: {', '.join(odd)}. " if odd else ""
    return tables.table(
        f"{capital(task.metric.short)} per {task.one}",
        task.one,
        rows.items() if len(rows) <= MOST else (),
        note=f"{note}{task.file}.csv has the 95 % intervals.",
        folded=True,
    )


def limits(content: dict[str, Any]) -> list[str]:
    """List what a finished run's test cannot show."""
    test, task = content["test"], tasks.of(content["recipe"])
    said: dict[str, list[str]] = {}
    for row in test[task.outputs]:
        if row.get("reason") or row[task.metric.name] is None:
            said.setdefault(row.get("reason") or "no test image", []).append(row[task.one])
    return [
        f"{', '.join(of) if len(of) <= MOST else f'{len(of):,} {task.outputs}'}: {reason}"
        for reason, of in said.items()
    ]
