"""Build the results page: a row for each machine and framework, from folders of records.

A record that does not fit the schema is left out.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
from helpers.results.tables import Cell, Name, Table, of_metric, ranged, short_number, table

PAGE = "results.html"
TITLE = "Results of all machines"


class Collected(NamedTuple):
    """The runs of each recipe, and a line for each record that is left out."""

    compared: list[Comparison]
    left_out: list[str]

    @property
    def headline(self) -> str:
        """``12 runs of 5 machines, with 2 records left out.``"""
        entries = [entry for compared in self.compared for entry in compared.entries]
        runs, machines = len(entries), len({entry.machine for entry in entries})
        left = len(self.left_out)
        return (
            f"{runs} run{'s' * (runs != 1)} of {machines} machine{'s' * (machines != 1)}, "
            f"with {left} record{'s' * (left != 1)} left out."
        )


def collect(folders: Sequence[str | Path]) -> Collected:
    """Find the finished runs whose records are below these folders.

    Links are not followed, and a run that is found twice counts once.

    Raises:
        UserError: a folder does not exist, or no record can be used.
    """
    left_out: list[str] = []
    found: set[Path] = set()
    for folder in map(comparison.folder_of, folders):
        comparison.must_exist(folder)
        for where, _, names in os.walk(folder, onerror=lambda e: left_out.append(refusal(e))):
            found |= {Path(where).resolve() / FILE} if FILE in names else set()
    entries: dict[Any, Entry] = {}
    for path in sorted(found):
        try:
            entry = Entry(path.parent, record.read(path))
            if not entry.finished:
                raise UserError(f"{path}: the run is not finished ({entry.content['state']})")
            run = entry.content["run"]
            known = str([run[key] for key in ("host", "process", "started", "notebook")])
            if entries.setdefault(known, entry) is not entry:
                raise UserError(f"{path}: the same run as {entries[known].folder / FILE}")
        except UserError as error:
            left_out.append(str(error).replace(f"{Path.cwd()}/", ""))
    if not entries:
        more = f" (and {len(left_out) - 1} more that cannot be used)" if left_out[1:] else ""
        where = " and ".join(map(str, folders))
        raise UserError((left_out or [f"{where}: no {FILE} in it or below"])[0] + more)
    of_recipe: dict[tuple[str, str], list[Entry]] = {}
    for entry in comparison.with_machines([*entries.values()]):
        recipe = entry.content["recipe"]
        of_recipe.setdefault((recipe["name"], recipe["task"]), []).append(entry)
    return Collected([comparison.of(of_recipe[each]) for each in sorted(of_recipe)], left_out)


def write(collected: Collected, folder: Path) -> Path:
    """Write the page into ``folder``, replacing an older one."""
    folder.mkdir(parents=True, exist_ok=True)
    paths.write_atomically(folder / PAGE, render(collected, folder))
    return folder / PAGE


def render(collected: Collected, folder: Path) -> str:
    """The page, whose links to the records are relative to ``folder``."""
    found = list(map(_table, collected.compared))
    note = (
        "Machines and frameworks are in order, not ranked: machines differ in more than the device."
    )
    sections = [Section("results", TITLE, note, found)]
    if collected.left_out:
        listed = [Texts("Records left out", collected.left_out)]
        sections.append(Section("left-out", "Records left out", "", listed))
    frames = [each.frame.reset_index().assign(recipe=each.title) for each in found]
    files = {"results": data_files.csv(pd.concat(frames))}
    return page.render(TITLE, collected.headline, sections, files, folder)


def _table(compared: Comparison) -> Table:
    """One row per machine, framework and number of devices."""
    groups, metric = repeats(compared.finished), compared.task.metric
    rows: dict[Any, tuple[Name, dict[str, Cell | str]]] = {}
    for row in summarise(compared).to_dict("records"):
        entries = groups[row["label"], row["devices"]]
        last, framework = entries[-1], label_anywhere(entries[0])
        content, hardware = last.content, last.content["hardware"]
        versions = content["framework"]["versions"].items()
        rows[last.machine, order(framework), row["devices"], row["label"]] = (
            Name(framework, row["flags"]),
            {
                "machine": Cell(
                    last.machine, note=f"{hardware['cpu']}, {hardware['cores']} logical cores"
                ),
                "devices": devices_text(content["devices"]),
                "images/s": ranged(row, "images_per_second", short_number),
                f"test {metric.short}": of_metric(row, metric),
                "fair": fair(entries),
                "versions": ", ".join(f"{name} {of}" for name, of in versions if name != "python"),
                "date": content["run"]["started"][:10],
                "records": Cell(
                    "", links=tuple((e.variant or "record", e.folder / FILE) for e in entries)
                ),
            },
        )
    title = f"Recipe {compared.entries[0].content['recipe']['name']}"
    found = [rows[place] for place in sorted(rows)]
    return table(title, "framework", found, note=brackets(compared), kind="all")
