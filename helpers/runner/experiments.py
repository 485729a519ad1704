"""Create and load an experiment's folder: what was asked for, and the records of its runs.

``experiment.json`` keeps the plan, and when the experiment ended. Only the record in a run's folder
gives the state of the run.
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
from typing import Any

import msgspec

from helpers import paths, record
from helpers.errors import UserError
from helpers.record import processes
from helpers.record.file import read_json
from helpers.runner import hangs, locks
from helpers.runner.plans import Plan, PlannedRun
from helpers.runner.self_test import Outcome
from helpers.training.parameters import BY_HAND

FILE = "experiment.json"
LATEST = "latest"
REPORT = "report.html"
SETTLED = ("finished", "failed", "skipped")
"""The states of runs that are over."""


@dataclass
class Experiment:
    """An experiment's folder and plan."""

    folder: Path
    plan: Plan
    resumed: bool = False
    self_tests: dict[str, Outcome] = field(default_factory=dict)
    """The outcomes of the self-tests, by environment and number of GPUs."""
    stall_minutes: float = hangs.MINUTES

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def runs(self) -> list[PlannedRun]:
        return self.plan.runs

    def open(self) -> None:
        """Start or resume: write down what is asked for, and point ``runs/latest`` here."""
        if not self.resumed:
            self.plan.command, self.plan.started = shlex.join(sys.argv), _now()
        self._write(ended="")
        for run in self.runs:
            content = self.record_of(run)
            variant = content.get("run", {}).get("variant")
            if content["state"] == "finished" and variant != (run.variant or None):
                # The runner was killed when its notebook had just ended.
                self.write_record(run, content)
        _point_latest_at(self.folder)

    def close(self) -> None:
        """All runs are over, and are compared and reported."""
        self._write(ended=_now())

    def _write(self, ended: str) -> None:
        self.plan.ended = ended
        text = json.dumps(asdict(self.plan), indent=1)
        paths.write_atomically(self.folder / FILE, text + "\n")

    def folder_of(self, run: PlannedRun) -> Path:
        return self.folder / run.folder

    def record_of(self, run: PlannedRun) -> dict[str, Any]:
        """A run's record.

        Where there is none, or none that can be read, only the ``state`` (``waiting``,
        ``unreadable``) and the ``reason``.
        """
        if not (self.folder_of(run) / record.FILE).exists():
            return {"state": "waiting", "reason": ""}
        try:
            return record.read(self.folder_of(run))
        except UserError as error:
            return {"state": "unreadable", "reason": str(error)}

    def is_finished(self, run: PlannedRun) -> bool:
        return bool(self.record_of(run)["state"] == "finished")

    def write_record(self, run: PlannedRun, content: Mapping[str, Any]) -> None:
        """Write a run's record, and in it which run of the experiment it is."""
        about = content["run"] | ({"variant": run.variant} if run.variant else {})
        record.check(whole := {**content, "run": about}, self.folder_of(run))
        record.write(self.folder_of(run), whole)

    def short_record(self, run: PlannedRun) -> dict[str, Any]:
        """A record for a run that ended before it wrote one."""
        about = {"notebook": run.notebook, **processes.own()}
        return {
            "schema": record.SCHEMA,
            "run": about | {"started": _now(), "finished": _now()},
            "state": "running",
            "framework": {"name": run.framework, "kernel": run.kernel, "versions": {}},
        }


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
        # By its name, failed runs are repeated, because their cause may be fixed.
        again = name is not None and not all(map(previous.is_finished, previous.runs))
        if not previous.plan.ended or again:
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
    """The plan of the experiment in ``folder``."""
    path = folder / FILE
    try:
        plan = msgspec.convert(read_json(path), Plan)
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
    """Whether the folder contains an experiment, or anything else."""
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
