"""Make the tables of results: each framework's times, what limits it, and what it used.

Numbers to compute with come from ``helpers.results.runs.frame``.
"""

from collections.abc import Sequence
from pathlib import Path

from helpers import record
from helpers.fairness.check_results import EXPECTED
from helpers.record import this_notebook
from helpers.results import learning_curves, tables, waits
from helpers.results.comparability import failed, variants
from helpers.results.comparison import Comparison, Entry, repeats
from helpers.results.learning_curves import NOT_REACHED
from helpers.results.repeated_runs import brackets, summarise, widest_first
from helpers.results.tables import (
    ABSENT,
    Cell,
    Name,
    Row,
    Table,
    of_metric,
    of_row,
    ranged,
    short_number,
    time_column,
)

LONG = 10
"""Up to this number, all rows are shown at first; otherwise those of each label's most devices."""
IMAGES = "images/s"


def runs(compared: Comparison) -> Table:
    """One row per label and number of devices; if they are ranked, the first to finish is on top.

    Each label's most devices come first, and the runs that did not finish last. Each row leads to
    its runs' notebooks and records.
    """
    (numbers, count), metric = widest_first(compared), compared.task.metric
    wanted = learning_curves.main_target(compared)
    unit, clock = time_column(numbers["seconds_high"])
    groups = repeats(compared.finished)
    several = len({entry.machine for entry in compared.finished}) > 1
    mixed = numbers["runs"].nunique() > 1
    most = 0 if numbers.empty else int(numbers["devices"].max())
    rows: list[tuple[Name, Row]] = []
    for row in numbers.to_dict("records"):
        entries = groups[row["label"], row["devices"]]
        cells: dict[str, Cell | str] = {}
        if several:
            cells["machine"] = entries[0].machine
        if mixed:
            cells["runs"] = Cell(row["runs"])
        cells[f"training ({unit})"] = ranged(row, "seconds", clock)
        if wanted is not None:
            to = f"to {compared.metric.short} {compared.metric.target(wanted)} ({unit})"
            cells[to] = ranged(row, "seconds_to_target", clock, missing=NOT_REACHED)
        cells |= {
            IMAGES: ranged(row, "images_per_second", short_number),
            f"test {metric.short}": of_metric(row, metric),
            "fair": fair(entries),
            "limited by": waits.limited_by(entries),
            "evidence": _evidence(entries),
        }
        rows.append((of_row(row, most), cells))
    rows += _unfinished(compared)
    return tables.table(
        "All runs",
        tables.on(most) if most else "run",
        rows,
        note=f"Training includes compiling and validation; {IMAGES} are those of the epochs after "
        f"the first. For a longer training, choose by {IMAGES}: compiling is paid once. "
        f"{brackets(compared)}",
        kind="all",
        first=count if len(rows) > LONG else 0,
        drawn=(f"training ({unit})", IMAGES),
    )


def _unfinished(compared: Comparison) -> list[tuple[Name, Row]]:
    """The runs that failed, were skipped or still run, and the number of unusable records."""
    found: dict[tuple[str, str], list[Entry]] = {}
    for entry in compared.entries:
        if not entry.finished:
            found.setdefault((entry.run, entry.content["state"]), []).append(entry)
    rows: list[tuple[Name, Row]] = [
        (Name(run, (state,)), {"evidence": _evidence(entries)})
        for (run, state), entries in found.items()
    ]
    if count := len(compared.left_out):
        who = "a record" if count == 1 else f"{count} records"
        rows.append((Name(who, ("left out",)), {}))
    return rows


def resources(compared: Comparison) -> Table:
    """Energy, memory and the first step: one row per label and number of devices."""
    found = summarise(compared)
    unit, clock = time_column(found["first_step_seconds_high"])
    heads = {
        "energy (kJ)": ("joules", short_number, 1000.0),
        "images per joule": ("images_per_joule", "{:.3g}".format, 1.0),
        "peak memory of a device (GiB)": ("peak_bytes", short_number, 2.0**30),
        f"first step ({unit})": ("first_step_seconds", clock, 1.0),
    }
    rows = []
    for row in found.to_dict("records"):
        cells = {head: ranged(row, *of, missing=ABSENT) for head, of in heads.items()}
        rows.append((of_row(row), cells))
    return tables.table(
        "Energy, memory and the first step",
        "run",
        rows,
        note="Energy is that of the GPUs while training. Peak memory counts all processes on a "
        "GPU, but only a CPU device's own.",
        folded=True,
    )


def fair(entries: Sequence[Entry]) -> Cell:
    """The worst fairness check of the repeats, with the number of expected differences."""
    contents = [entry.content for entry in entries]
    if any(map(failed, contents)):
        return Cell("failed", tone="bad")
    if any(map(variants, contents)):
        return Cell("different", tone="other")
    checks = [check for content in contents for check in content["fairness"]["checks"]]
    expected = {check["check"] for check in checks if check["verdict"] == EXPECTED}
    known = f"{len(expected)} expected difference{'s' * (len(expected) > 1)}" if expected else ""
    return Cell("passed", note=known, tone="good")


def _evidence(entries: Sequence[Entry]) -> Cell:
    """Links to each run's executed notebook and record; repeats are named by their variants."""
    links: list[tuple[str, Path]] = []
    for entry in entries:
        notebook, content = entry.folder / this_notebook.EXECUTED, entry.folder / record.FILE
        name = entry.variant if len(entries) > 1 else ""
        if notebook.exists():
            links += [(name or "notebook", notebook), ("record", content)]
        else:
            links.append((name or "record", content))
    return Cell(", ".join(dict.fromkeys(text for text, _ in links)), links=tuple(links))
