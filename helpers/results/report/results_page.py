"""Build the results page: a row for each machine and framework, from folders of records.

A record that does not fit the schema is left out.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import paths, record
from helpers.errors import UserError, refusal
from helpers.frameworks import order
from helpers.record import FILE
from helpers.results import comparison
from helpers.results.comparison import Comparison, Entry, repeats
from helpers.results.comparison_tables import fair
from helpers.results.machine_tables import devices_text, label_anywhere
from helpers.results.repeated_runs import brackets, summarise
from helpers.results.report import data_files, page
from helpers.results.report.sections import Section, Texts
from helpers.results.tables import Cell, Name, Row, Table, of_label, of_metric, ranged, table
from helpers.results.tables import short_number as short

PAGE = "results.html"
TITLE = "Results of all machines"


@dataclass(frozen=True)
class Collected:
    """The runs of each recipe, and a line for each record that is left out."""

    compared: tuple[Comparison, ...]
    left_out: tuple[str, ...]

    @property
    def headline(self) -> str:
        """``12 runs of 5 machines, with 2 records left out.``"""
        entries = [entry for compared in self.compared for entry in compared.entries]
        return (
            f"{_count(len(entries), 'run')} of "
            f"{_count(len({entry.machine for entry in entries}), 'machine')}, with "
            f"{_count(len(self.left_out), 'record')} left out."
        )


def collect(folders: Sequence[str | Path]) -> Collected:
    """The finished runs whose records are somewhere below these folders.

    Links are not followed, and a run that is there twice counts once.

    Raises:
        UserError: a folder is not there, or no record can be used.
    """
    entries: list[Entry] = []
    left_out: list[str] = []
    runs: dict[str, Path] = {}
    for path in sorted({path for each in folders for path in _records(each, left_out)}):
        try:
            entry = _entry(path)
            run = entry.content["run"]
            known = json.dumps([run[key] for key in ("host", "process", "started", "notebook")])
            if (first := runs.setdefault(known, path)) is not path:
                raise UserError(f"{path}: the same run as {first}")
            entries.append(entry)
        except UserError as error:
            left_out.append(str(error).replace(f"{Path.cwd()}/", ""))
    if not entries:
        more = f" (and {len(left_out) - 1} more that cannot be used)" if left_out[1:] else ""
        where = " and ".join(map(str, folders))
        raise UserError((left_out or [f"{where}: no {FILE} in it or below"])[0] + more)
    of_recipe: dict[tuple[str, str], list[Entry]] = {}
    for entry in comparison.with_machines(entries):
        recipe = entry.content["recipe"]
        of_recipe.setdefault((recipe["name"], recipe["task"]), []).append(entry)
    return Collected(
        tuple(comparison.of(of_recipe[each]) for each in sorted(of_recipe)), tuple(left_out)
    )


def _records(folder: str | Path, left_out: list[str]) -> Iterator[Path]:
    comparison.must_exist(found := comparison.folder_of(folder))
    for where, _, names in os.walk(found, onerror=lambda error: left_out.append(refusal(error))):
        if FILE in names:
            yield Path(where).resolve() / FILE


def _entry(path: Path) -> Entry:
    """Raises UserError: it is no record, or the run has not finished."""
    entry = Entry(path.parent, dict(record.read(path)))
    if not entry.finished:
        raise UserError(f"{path}: the run is not finished ({entry.content['state']})")
    return entry


def write(collected: Collected, folder: Path) -> Path:
    """The page in ``folder``, in the place of an older one."""
    folder.mkdir(parents=True, exist_ok=True)
    paths.write_atomically(folder / PAGE, render(collected, folder))
    return folder / PAGE


def render(collected: Collected, folder: Path) -> str:
    """The page for ``folder``, from which its links to the records lead."""
    found = list(map(_table, collected.compared))
    frames = [each.frame.reset_index().assign(recipe=each.title) for each in found]
    note = (
        "Machines and frameworks are in order, not ranked: machines differ in more than the device."
    )
    sections = [Section("results", TITLE, note, found)]
    if collected.left_out:
        listed = [Texts("Records left out", collected.left_out)]
        sections.append(Section("left-out", "Records left out", "", listed))
    files = {"results": data_files.csv(pd.concat(frames))}
    return page.of_sections(TITLE, collected.headline, sections, files, folder)


def _table(compared: Comparison) -> Table:
    """A row for each machine, framework and number of devices."""
    groups, metric = repeats(compared.finished), compared.task.metric
    rows: list[tuple[Any, Name, Row]] = []
    for row in summarise(compared).to_dict("records"):
        entries = groups[row["label"], row["devices"]]
        last, framework = entries[-1], label_anywhere(entries[0])
        hardware = last.content["hardware"]
        versions = last.content["framework"]["versions"]
        packages = [f"{name} {version}" for name, version in versions.items() if name != "python"]
        cells = {
            "machine": Cell(
                last.machine,
                note=f"{hardware['cpu']}, {hardware['cores']} logical cores",
            ),
            "devices": Cell(devices_text(last.content["devices"])),
            "images/s": ranged(row, "images_per_second", short),
            f"test {metric.short}": of_metric(row, metric),
            "fair": fair(entries),
            "versions": Cell(", ".join(packages)),
            "date": Cell(last.content["run"]["started"][:10]),
            "records": Cell(
                "",
                links=tuple((e.variant or "record", e.folder / FILE) for e in entries),
            ),
        }
        place = last.machine, order(framework), row["devices"]
        rows.append((place, of_label(framework, row["marks"]), cells))
    rows.sort(key=lambda row: row[0])
    recipe = compared.entries[0].content["recipe"]["name"]
    found = [row[1:] for row in rows]
    return table(f"Recipe {recipe}", "framework", found, note=brackets(compared), kind="all")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
