"""Show how long the steps of each rank took, and name slow devices and ranks."""

import pandas as pd

from helpers.results import tables
from helpers.results.comparison import Comparison, latest_of_each
from helpers.results.tables import ABSENT, Cell, Table, of_run, share, short_number
from helpers.training import slow_devices
from helpers.training.step_parts import PERCENTILES


def numbers(compared: Comparison) -> pd.DataFrame:
    """Seconds of a step; a row a rank, of each label's last run.

    Columns: run, label, devices (of the run), rank, place (``rank 3 on node2``), of (the numbers of
    its devices), steps, p50, p95, p99, slowest (steps in which it waited least for gradients).
    """
    rows = []
    for entry in latest_of_each(compared.finished):
        found = entry.content["training"].get("step_times", [])
        each = (entry.devices or 0) // len(found) if found else 0
        for rank, row in enumerate(found):
            of = ", ".join(map(str, range(rank * each, (rank + 1) * each)))
            about = {"run": entry.timed, "label": entry.label, "devices": entry.devices}
            about |= {"rank": rank, "place": slow_devices.place(entry.content, rank), "of": of}
            rows.append(about | row)
    return pd.DataFrame(rows)


def table(compared: Comparison) -> Table:
    """:func:`numbers` in milliseconds."""
    names = {entry.timed: of_run(entry) for entry in compared.finished}
    rows = []
    for row in numbers(compared).to_dict("records"):
        cells = {"rank": row["place"].removeprefix("rank "), "devices": row["of"]}
        cells |= {name: Cell(1000 * row[name], short_number) for name in PERCENTILES}
        seen = pd.notna(row["slowest"])
        part = Cell(row["slowest"] / row["steps"], share) if seen else ABSENT
        rows.append((names[row["run"]], cells | {"slowest": part}))
    return tables.table(
        "Step times, in ms",
        "ms a step",
        rows,
        note="The columns p50, p95 and p99 are percentiles of a rank's step times, without the "
        "first step of each epoch. All ranks end a step together. Slowest is the share of steps "
        "in which the rank waited least for gradients, so that the others waited for it.",
    ).without_uniform("slowest")


def sentences(compared: Comparison) -> list[str]:
    """The slow devices before training and the slowest rank while training; a line a run."""
    said = {}
    for entry in latest_of_each(compared.finished):
        found = slow_devices.sentences(entry.content)
        said[entry.timed] = [*found, slow_devices.slowest_rank(entry.content)]
    return [f"{run}: {' '.join(filter(None, each))}" for run, each in said.items() if any(each)]
