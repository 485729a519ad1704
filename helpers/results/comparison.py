"""Load the records of one or several experiments, and compare them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.core.groupby import DataFrameGroupBy

from helpers import paths, record
from helpers.errors import UserError
from helpers.frameworks import name_of, order
from helpers.record import tasks
from helpers.record.tasks import Metric, Task
from helpers.results import comparability, machines, run_labels

ENDS = ("", "_low", "_high")
"""The endings of a result's columns: its value, and the ends of its range or interval."""
KEPT = 4
"""The number of comparisons whose results are cached, because every table and chart uses them."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One run; ``content`` is its checked record. Results computed from an entry are cached."""

    folder: Path
    content: dict[str, Any]
    setting: str = ""
    """What distinguishes it from other runs of its notebook, such as ``bf16``."""
    program: str = ""
    """What distinguishes it from runs with other code, such as ``(code 1a2b3c4)``."""
    machine: str = ""
    """``box``: the machine's name among the compared ones; nothing if it is not known."""

    @property
    def label(self) -> str:
        """Framework, notebook (if the framework has several), setting, program and nodes.

        ``PyTorch DataParallel bf16``, ``PyTorch (code 1a2b3c4)``, ``PyTorch 2 x 1 simulated``.
        """
        return self._named(self.nodes)

    @property
    def series(self) -> str:
        """The label without its nodes, which is the same for all numbers of devices."""
        return self._named("")

    def _named(self, nodes: str) -> str:
        framework = self.content["framework"]
        notebook = self.content["run"]["notebook"]
        name = name_of(str(framework["name"]), notebook, str(framework["kernel"]))
        return " ".join(part for part in (name, self.setting, self.program, nodes) if part)

    @property
    def nodes(self) -> str:
        """Nodes and the devices of each: ``2 x 4``, ``2 x 1 simulated``; nothing for one node."""
        count = comparability.nodes(self.content)
        if count == 1:
            return ""
        simulated = " simulated" if comparability.simulated_nodes(self.content) else ""
        return f"{count} x {(self.devices or 0) // count}{simulated}"

    @property
    def devices(self) -> int | None:
        return self.content.get("devices", {}).get("count")

    @property
    def run(self) -> str:
        """Label, number of devices, and whether the run was resumed, for people to read."""
        count = "" if self.devices is None else devices(self.devices)
        resumed = comparability.RESUMED * (comparability.resumed_after(self.content) > 0)
        return ", ".join(filter(None, [self.label, count, resumed]))

    @property
    def timed(self) -> str:
        """``run`` with its flags, for use with a time: ``Keras, 2 devices (not comparable)``."""
        return comparability.flagged(self.run, self.flags)

    @property
    def flags(self) -> tuple[str, ...]:
        """The reasons why its times are not comparable, except a resume, which ``run`` names."""
        found = comparability.flags(self.content)
        return tuple(flag for flag in found if flag != comparability.RESUMED)

    @property
    def task(self) -> Task | None:
        """None if the run ended before it had a recipe."""
        return tasks.of(self.content["recipe"]) if "recipe" in self.content else None

    @property
    def variant(self) -> str:
        """What distinguishes it from its notebook's other runs: ``seed0``, or "" if alone."""
        return (self.content["run"].get("variant") or "").replace("-", " ")

    @property
    def finished(self) -> bool:
        return bool(self.content["state"] == "finished")

    @property
    def comparable(self) -> bool:
        """Whether its fairness check allows a comparison of its times."""
        return bool(self.content.get("fairness", {}).get("comparable", False))


@dataclass(frozen=True, eq=False)
class Comparison:
    """The compared runs, in order. Results computed from a comparison are cached."""

    entries: tuple[Entry, ...]
    left_out: tuple[str, ...]
    """One line for each record that cannot be read or is of another task."""
    folders: tuple[Path, ...]

    @property
    def task(self) -> Task:
        """The task of all these runs."""
        return next((entry.task for entry in self.entries if entry.task), tasks.MULTILABEL)

    @cached_property  # used by each curve, and computed from all runs
    def metric(self) -> Metric:
        """The metric of the learning curves: that of the recipes' targets, if all have one."""
        found = {tasks.metric_of(entry.content["recipe"]) for entry in self.entries if entry.task}
        return found.pop() if len(found) == 1 else self.task.metric

    @property
    def finished(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.finished)


def load(experiments: str | Path | Iterable[str | Path] = "latest") -> Comparison:
    """Load the runs of an experiment (a name under ``runs/``, or a folder), or of several together.

    An experiment that is named twice counts once. A record that cannot be read, or that has another
    task than the last run of its experiment, is reported in the result and does not hide the
    others.

    Raises:
        UserError: one of several experiments does not exist, or they have different tasks.
    """
    if isinstance(experiments, str | Path):
        experiments = [experiments]
    # ``latest`` is a link to an experiment that may be named as well.
    found = {folder.resolve(): folder for folder in map(folder_of, experiments)}
    folders = tuple(found.values())
    for folder in folders if len(folders) > 1 else ():
        must_exist(folder)
    entries, left_out = [], []
    for folder in folders:
        for path in sorted(folder.glob(f"*/{record.FILE}")):
            try:
                entries.append(Entry(path.parent, record.read(path)))
            except UserError as error:
                left_out.append(str(error))
    entries, others = _of_one_task(with_machines(entries))
    return of(entries, (*left_out, *others), folders)


def of(
    entries: Sequence[Entry], left_out: tuple[str, ...] = (), folders: tuple[Path, ...] = ()
) -> Comparison:
    """Compare these runs of one task, each labelled by what distinguishes it."""
    contents = [entry.content for entry in entries]
    settings = run_labels.settings(contents, [entry.machine for entry in entries])
    entries = [replace(entry, setting=said) for entry, said in zip(entries, settings, strict=True)]
    programs = run_labels.programs([entry.series for entry in entries], contents)
    entries = [replace(entry, program=said) for entry, said in zip(entries, programs, strict=True)]
    entries.sort(key=lambda e: (order(e.label), e.devices or 0, e.content["run"]["started"]))
    return Comparison(tuple(entries), left_out, folders)


def with_machines(entries: Sequence[Entry]) -> list[Entry]:
    """Add to the entries the names of their machines."""
    names = machines.names([entry.content for entry in entries])
    return [replace(entry, machine=name) for entry, name in zip(entries, names, strict=True)]


def how_to_begin(compared: Comparison) -> str | None:
    """What to do if there is nothing to compare; None otherwise."""
    if compared.entries or compared.left_out:
        return None
    where = " and ".join(str(folder) for folder in compared.folders)
    return (
        f"There is no record under {where} yet: run 'make compare' in a terminal, "
        'or all cells of a framework\'s notebook (then set runs = "interactive" here).'
    )


def repeats(entries: Iterable[Entry]) -> dict[tuple[str, int], list[Entry]]:
    """The runs that repeat each other, by label and devices; skipped runs are left out."""
    found: dict[tuple[str, int], list[Entry]] = {}
    for entry in entries:
        if entry.devices is not None:
            found.setdefault((entry.label, entry.devices), []).append(entry)
    return found


def with_ends(groups: DataFrameGroupBy) -> pd.DataFrame:
    """Each column's median, with the minimum and maximum under ``_low`` and ``_high``."""
    ends = {"": "median", "_low": "min", "_high": "max"}
    return pd.concat([groups.agg(how).add_suffix(end) for end, how in ends.items()], axis=1)


def latest_of_each(entries: Iterable[Entry]) -> list[Entry]:
    """For each label and number of devices, the run that was started last."""
    last = {(entry.label, entry.devices): entry for entry in entries}
    return list(last.values())


def widest(entries: Iterable[Entry]) -> list[Entry]:
    """For each label, the last run on the most devices; skipped runs are left out."""
    found = list(entries)
    last = {entry.label: entry for entry in sorted(found, key=lambda entry: entry.devices or 0)}
    return [last[label] for label in dict.fromkeys(entry.label for entry in found)]


def devices(count: int) -> str:
    """``1 device``, ``4 devices``."""
    return f"{count} device{'s' if count != 1 else ''}"


def _of_one_task(entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """The entries with the last run's task, and why each other entry is left out."""
    known = [entry for entry in entries if entry.task]
    where = {entry.task.name: entry.folder.parent.name for entry in known if entry.task}
    if len(where) > 1 and len({entry.folder.parent for entry in known}) > 1:
        found = ", ".join(f"{task} in {folder}" for task, folder in where.items())
        raise UserError(
            f"runs of different tasks cannot be in one report: {found}; give experiments of one "
            "task"
        )
    task = max(known, key=lambda e: e.content["run"]["started"]).task if known else None
    others = [
        f"{entry.folder / record.FILE}: its task is {entry.task.name}, so it is left out: the "
        f"experiment's last run has the task {task.name}"
        for entry in known
        if entry.task and task and entry.task is not task
    ]
    return [entry for entry in entries if entry.task in (task, None)], others


def must_exist(folder: Path) -> None:
    """Raise UserError if an experiment does not exist, with the names of those that do."""
    if folder.is_dir():
        return
    there = sorted({path.parts[-3] for path in paths.RUNS.glob(f"*/*/{record.FILE}")} - {"latest"})
    hint = f"there are {', '.join(there)}" if there else "'make compare' runs one"
    raise UserError(f"{folder}: there is no such experiment; {hint}")


def folder_of(experiment: str | Path) -> Path:
    """Find an experiment by its name under ``runs/``, or use the folder as it is given."""
    given, named = Path(experiment), paths.RUNS / experiment
    return given.absolute() if given.is_dir() and not named.exists() else named
