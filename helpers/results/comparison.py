"""Load the records of one or several experiments, and compare them; only records are read."""

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
"""The endings of a figure's columns: its value, and the ends of its range or interval."""
KEPT = 4
"""Comparisons whose figures are kept, because every table and chart asks for them again."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One run; ``content`` is its record, checked. What was worked out from one is kept for it."""

    folder: Path
    content: dict[str, Any]
    setting: str = ""
    """What sets it apart from other runs of its notebook: ``bf16``."""
    program: str = ""
    """What sets it apart from runs with other code: ``(code 1a2b3c4)``."""
    machine: str = ""
    """``box``: the machine's name among those that are compared; nothing where it is not known."""

    @property
    def label(self) -> str:
        """Framework, notebook where it has several, setting, program, nodes.

        ``PyTorch DataParallel bf16``, ``PyTorch (code 1a2b3c4)``, ``PyTorch 2 x 1 simulated``.
        """
        return self._named(self.nodes)

    @property
    def series(self) -> str:
        """The label without its nodes: what is the same wherever more devices are tried."""
        return self._named("")

    def _named(self, nodes: str) -> str:
        framework = self.content["framework"]
        notebook = self.content["run"]["notebook"]
        name = name_of(str(framework["name"]), notebook, str(framework["kernel"]))
        return " ".join(part for part in (name, self.setting, self.program, nodes) if part)

    @property
    def nodes(self) -> str:
        """``2 x 4``, nodes and the devices of each, ``2 x 1 simulated``; nothing of one node."""
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
        """Label, number of devices, and whether it was resumed, for people."""
        count = "" if self.devices is None else devices(self.devices)
        resumed = comparability.RESUMED * (comparability.resumed_after(self.content) > 0)
        return ", ".join(filter(None, [self.label, count, resumed]))

    @property
    def timed(self) -> str:
        """``run`` with its flags, for use with a time: ``Keras, 2 devices (not comparable)``."""
        return comparability.flagged(self.run, self.flags)

    @property
    def flags(self) -> tuple[str, ...]:
        """Why its times are not comparable, apart from being resumed, which ``run`` tells."""
        found = comparability.flags(self.content)
        return tuple(flag for flag in found if flag != comparability.RESUMED)

    @property
    def task(self) -> Task | None:
        """None where it ended before it had a recipe."""
        return tasks.of(self.content["recipe"]) if "recipe" in self.content else None

    @property
    def variant(self) -> str:
        """``seed0``: what distinguishes it from its notebook's other runs; "" if there are none."""
        return (self.content["run"].get("variant") or "").replace("-", " ")

    @property
    def finished(self) -> bool:
        return bool(self.content["state"] == "finished")

    @property
    def comparable(self) -> bool:
        """Whether its times are comparable according to its fairness check."""
        return bool(self.content.get("fairness", {}).get("comparable", False))


@dataclass(frozen=True, eq=False)
class Comparison:
    """The runs that are compared, in order. What was worked out from one is kept for it."""

    entries: tuple[Entry, ...]
    left_out: tuple[str, ...]
    """One line for each record that cannot be read or is of another task."""
    folders: tuple[Path, ...]

    @property
    def task(self) -> Task:
        """What all of these runs were trained for."""
        return next((entry.task for entry in self.entries if entry.task), tasks.MULTILABEL)

    @cached_property  # used by each curve, and computed from all runs
    def metric(self) -> Metric:
        """By which their learning is shown: that of their recipe's targets, where all have one."""
        found = {tasks.metric_of(entry.content["recipe"]) for entry in self.entries if entry.task}
        return found.pop() if len(found) == 1 else self.task.metric

    @property
    def finished(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries if entry.finished)


def load(experiments: str | Path | Iterable[str | Path] = "latest") -> Comparison:
    """The runs of an experiment (a name under ``runs/``, or a folder), or of several together.

    An experiment that is named twice counts once. A record that cannot be read is reported in the
    result, it does not hide the others. Nor does one of another task than the last run of its
    experiment.

    Raises:
        UserError: one of several experiments is not there, or they are of different tasks.
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
                entries.append(Entry(path.parent, dict(record.read(path))))
            except UserError as error:
                left_out.append(str(error))
    entries, others = _of_one_task(with_machines(entries))
    return of(entries, (*left_out, *others), folders)


def of(
    entries: Sequence[Entry], left_out: tuple[str, ...] = (), folders: tuple[Path, ...] = ()
) -> Comparison:
    """The comparison of these runs of one task, labelled by what sets each of them apart."""
    contents = [entry.content for entry in entries]
    settings = run_labels.settings(contents, [entry.machine for entry in entries])
    entries = [replace(entry, setting=said) for entry, said in zip(entries, settings, strict=True)]
    programs = run_labels.programs([entry.series for entry in entries], contents)
    entries = [replace(entry, program=said) for entry, said in zip(entries, programs, strict=True)]
    entries.sort(key=lambda e: (order(e.label), e.devices or 0, e.content["run"]["started"]))
    return Comparison(tuple(entries), left_out, folders)


def with_machines(entries: Sequence[Entry]) -> list[Entry]:
    """The entries with the names of their machines."""
    names = machines.names([entry.content for entry in entries])
    return [replace(entry, machine=name) for entry, name in zip(entries, names, strict=True)]


def how_to_begin(compared: Comparison) -> str | None:
    """What to do where there is nothing to compare; None where there is something."""
    if compared.entries or compared.left_out:
        return None
    where = " and ".join(str(folder) for folder in compared.folders)
    return (
        f"There is no record under {where} yet: run 'make compare' in a terminal, "
        'or all cells of a framework\'s notebook (then set runs = "interactive" here).'
    )


def repeats(entries: Iterable[Entry]) -> dict[tuple[str, int], list[Entry]]:
    """By label and number of devices, the runs that repeat each other (skipped ones have none)."""
    found: dict[tuple[str, int], list[Entry]] = {}
    for entry in entries:
        if entry.devices is not None:
            found.setdefault((entry.label, entry.devices), []).append(entry)
    return found


def with_ends(groups: DataFrameGroupBy) -> pd.DataFrame:
    """Each column's median, with its minimum and maximum under ``_low`` and ``_high``."""
    ends = {"": "median", "_low": "min", "_high": "max"}
    return pd.concat([groups.agg(how).add_suffix(end) for end, how in ends.items()], axis=1)


def latest_of_each(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each label and number of devices: the last that was started."""
    last = {(entry.label, entry.devices): entry for entry in entries}
    return list(last.values())


def widest(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each label: the last run on the most devices (skipped ones have none)."""
    found = list(entries)
    last = {entry.label: entry for entry in sorted(found, key=lambda entry: entry.devices or 0)}
    return [last[label] for label in dict.fromkeys(entry.label for entry in found)]


def devices(count: int) -> str:
    """``1 device``, ``4 devices``."""
    return f"{count} device{'s' if count != 1 else ''}"


def _of_one_task(entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """Those of the last run's task, and why each of the others is left out."""
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
    """Refuse an experiment that is not there. Raises UserError, with the names of those there."""
    if folder.is_dir():
        return
    there = sorted({path.parts[-3] for path in paths.RUNS.glob(f"*/*/{record.FILE}")} - {"latest"})
    hint = f"there are {', '.join(there)}" if there else "'make compare' runs one"
    raise UserError(f"{folder}: there is no such experiment; {hint}")


def folder_of(experiment: str | Path) -> Path:
    """An experiment by its name under ``runs/``, else a folder as it is given."""
    given, named = Path(experiment), paths.RUNS / experiment
    return given.absolute() if given.is_dir() and not named.exists() else named
