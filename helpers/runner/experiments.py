"""Create and load an experiment's folder: what was asked for, and the records of its runs.

``experiment.json`` is written once and keeps the plan. The record in a run's folder alone says how
the run stands.
"""

import json
import os
import re
import secrets
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from helpers import paths, record
from helpers.errors import UserError
from helpers.launch import processes
from helpers.record import Record, json_files
from helpers.runner import locks
from helpers.runner.plans import Plan, PlannedRun
from helpers.runner.self_test import Outcome
from helpers.training.parameters import BY_HAND

FILE = "experiment.json"
LATEST = "latest"
REPORT = "report.html"
SETTLED = ("finished", "failed", "skipped")
"""The states of runs that have had their turn."""


@dataclass
class Experiment:
    """An experiment's folder and plan."""

    folder: Path
    plan: Plan
    resumed: bool = False
    self_tests: dict[str, Outcome] = field(default_factory=dict)
    """The outcomes of the self-tests, by environment and number of GPUs."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def runs(self) -> list[PlannedRun]:
        return self.plan.runs

    @property
    def failed(self) -> bool:
        """Whether a run did not finish."""
        return not all(map(self.is_finished, self.runs))

    @property
    def is_over(self) -> bool:
        """Whether all runs have had their turn, and are reported."""
        return (self.folder / REPORT).exists() and all(
            self.state_of(run)[0] in SETTLED for run in self.runs
        )

    def open(self) -> None:
        """Start or resume: write down what is asked for, and point ``runs/latest`` here."""
        if not self.resumed:
            asked = {"command": shlex.join(sys.argv), "started": _now(), **asdict(self.plan)}
            paths.write_atomically(self.folder / FILE, json.dumps(asked, indent=1) + "\n")
        (self.folder / REPORT).unlink(missing_ok=True)  # it would not be of all runs
        for run in filter(self.is_finished, self.runs):
            if self.record_of(run)["run"].get("variant") != (run.variant or None):
                self.complete(run)  # the runner was killed when its notebook had just ended
        _point_latest_at(self.folder)

    def folder_of(self, run: PlannedRun) -> Path:
        return self.folder / run.folder

    def record_of(self, run: PlannedRun) -> dict[str, Any]:
        """A run's record; empty where there is none that can be read."""
        try:
            return dict(record.read(self.folder_of(run)))
        except UserError:
            return {}

    def state_of(self, run: PlannedRun) -> tuple[str, str]:
        """How a run stands by its record, and the reason: ``waiting`` where there is none."""
        if not (self.folder_of(run) / record.FILE).exists():
            return "waiting", ""
        try:
            found = record.read(self.folder_of(run))
        except UserError as error:
            return "unreadable", str(error)
        return found["state"], found.get("reason") or ""

    def is_finished(self, run: PlannedRun) -> bool:
        return self.state_of(run)[0] == "finished"

    def complete(self, run: PlannedRun, **said: Any) -> None:
        """Add to a run's record what only the runner knows.

        A notebook that failed early has left no record, or one that cannot be read: then nothing.
        """
        if content := self.record_of(run):
            about = content["run"] | ({"variant": run.variant} if run.variant else {})
            self.write_record(run, {**content, **said, "run": about})

    def write_record(self, run: PlannedRun, content: Mapping[str, Any]) -> None:
        record.check(content, self.folder_of(run))
        record.write(self.folder_of(run), content)

    def short_record(self, run: PlannedRun) -> Record:
        """A record for a run that ended before it wrote one."""
        content = {
            "schema": record.SCHEMA,
            "run": {
                "experiment": self.name,
                "notebook": run.notebook,
                "variant": run.variant or None,
                "started": _now(),
                "finished": _now(),
                **processes.own(),
            },
            "state": "running",
            "framework": {"name": run.framework, "kernel": run.kernel, "versions": {}},
        }
        return cast(Record, content)


def choose(plan: Plan | None, *, name: str | None, resume: str | None) -> Experiment:
    """The experiment to work on: the one to resume, or a new one; nothing is written yet.

    An interrupted experiment with the same plan is continued, and so is one of that ``name`` in
    which runs failed.
    """
    if resume is not None:
        return load(resume)
    if plan is None:
        raise ValueError("a plan, or an experiment to resume")
    if name is not None:
        check_name(name)
    previous = None
    with suppress(UserError, OSError):
        previous = load(name or LATEST)
    if previous and previous.plan == plan:
        named = name is not None  # failed runs are repeated, because their cause may be fixed
        if not previous.is_over or (named and previous.failed):
            return previous
    if name is not None and is_taken(paths.RUNS / name):
        raise UserError(
            f"{paths.RUNS / name}: exists with another plan, or has finished; "
            f"choose another --name, or continue it with: rosetta run --resume {name}"
        )
    return Experiment(_free_folder(name), plan)


def load(name: str) -> Experiment:
    """The experiment called ``name`` (or ``latest``)."""
    if name != LATEST:
        check_name(name)
    folder = Path(os.path.realpath(paths.RUNS / name))
    if folder.parent != paths.RUNS.resolve():
        raise UserError(f"{paths.RUNS / name}: leads to {folder}, out of {paths.RUNS}")
    if not (folder / FILE).exists():
        others = [folder.name for folder in folders()]
        hint = f"the experiments are {', '.join(others)}" if others else "there is none yet"
        raise UserError(f"no experiment '{name}' in {paths.RUNS}: {hint}")
    return Experiment(folder, read_plan(folder), resumed=True)


def read_plan(folder: Path) -> Plan:
    """What was asked for of the experiment in ``folder``."""
    path = folder / FILE
    content = json_files.read(path, verbatim=["data", "recipe"])  # to be found again
    try:
        plan = msgspec.convert(content, Plan)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: not an experiment of this project ({error})") from None
    for run in plan.runs:  # each of these folders is emptied
        if (folder / run.folder).resolve().parent != folder.resolve():
            raise UserError(f"{path}: names a folder outside of the experiment: {run.folder}")
    return plan


def folders() -> list[Path]:
    """The experiments under ``runs/``, by name; ``latest`` is a link to one."""
    found = (path.parent for path in paths.RUNS.glob(f"*/{FILE}"))
    return sorted(folder for folder in found if not folder.is_symlink())


@contextmanager
def held(plan: Plan | None, *, name: str | None, resume: str | None) -> Iterator[Experiment]:
    """Lock the experiment to work on (:func:`choose`) against other commands on all hosts."""
    found = choose(plan, name=name, resume=resume).name
    instead = "" if resume else ", or give this one another --name"
    with locks.held(found, f"another rosetta run works on the experiment '{found}'", instead):
        # Its state may have changed before the lock was held.
        yield choose(plan, name=None if resume else found, resume=resume and found)


def check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,149}", name) or name in (LATEST, BY_HAND):
        raise UserError(
            f"experiment name '{name}': use letters, digits, dot, dash, underscore, 150 at most, "
            f"and not 'latest' or '{BY_HAND}'"
        )


def is_taken(folder: Path) -> bool:
    """Whether an experiment, or anything but an empty folder, is there."""
    return any(folder.iterdir()) if folder.is_dir() else os.path.lexists(folder)


def _point_latest_at(folder: Path) -> None:
    link = paths.RUNS / LATEST
    if link.is_dir() and not link.is_symlink():
        raise UserError(f"{link}: is a folder, but should be a link to an experiment; rename it")
    # Two experiments may begin at once.
    temporary = paths.RUNS / f".{LATEST}-{secrets.token_hex(4)}"
    try:
        temporary.symlink_to(folder.name)
        temporary.replace(link)
    finally:
        temporary.unlink(missing_ok=True)


def _free_folder(name: str | None) -> Path:
    if name is not None:
        return paths.RUNS.resolve() / name
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    names = [stamp, *(f"{stamp}-{number}" for number in range(2, 100))]
    return paths.RUNS.resolve() / next(n for n in names if not (paths.RUNS / n).exists())


def _now() -> str:
    return datetime.now(UTC).isoformat()
