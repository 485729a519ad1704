"""Create, load and update an experiment's folder: its plan and the state of its runs."""

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from data_prep.errors import printable
from helpers import paths, record
from helpers.errors import UserError, naming
from helpers.launch import processes, this_notebook
from helpers.record import Record
from helpers.runner import journal, kernel_processes, locks, plans
from helpers.runner.plans import Plan, RunState
from helpers.runner.self_test import Outcome
from helpers.training import checkpoint
from helpers.training.parameters import BY_HAND

LATEST = "latest"
RESERVE = ".reserve"
"""A file that reserves disk space, so that journal and record can be written on a full disk."""
RESERVED = 2**18


@dataclass
class Experiment:
    """An experiment's folder and journal."""

    folder: Path
    plan: Plan
    started: str
    finished: str | None = None
    resumed: bool = False
    adopted: list[RunState] = field(default_factory=list)
    """Runs that were complete when the runner was killed before it could record that."""
    self_tests: dict[str, Outcome] = field(default_factory=dict)
    """The outcomes of the self-tests, by environment and number of GPUs."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def runs(self) -> list[RunState]:
        return self.plan.runs

    @property
    def failed(self) -> bool:
        """Whether a run did not finish. Notebooks that changed later do not count, because a user
        who names a complete experiment does not want to lose it."""
        return any(state.state != "finished" for state in self.runs)

    def open(self) -> None:
        """Start or resume: write the journal and ``runs/latest``, and end leftover processes.

        Leftover processes of other experiments are ended too, because they would use the devices.
        """
        kernel_processes.stop_marked(paths.RUNS.resolve(), spare=self._is_of_another)
        for state in self.adopted:
            folder = self.folder / state.folder
            complete(folder, run=state.about(), **_unsaid_processes(folder))
        for state in self.runs:
            if not self.is_finished(state):
                if state.state != "waiting":
                    state.earlier.append(how_it_ended(state))
                state.state, state.reason = "waiting", None
            if state.sha256 != plans.digest(state.notebook):  # the notebook changed: restart
                checkpoint.remove(self.folder / state.folder)
            state.sha256 = plans.digest(state.notebook)
        self.finished = None
        self._write()
        with naming(reserve := self.folder / RESERVE):
            reserve.write_bytes(bytes(RESERVED))
        _point_latest_at(self.folder)

    def close(self) -> None:
        """Record that all runs have been tried."""
        self.finished = _now()
        self._write()
        self.free_reserve()

    def note(self, state: RunState, outcome: str, reason: str | None = None) -> None:
        """Record that a run is now ``outcome``."""
        state.state, state.reason = outcome, None if reason is None else printable(reason)
        self._write()

    def free_reserve(self) -> None:
        (self.folder / RESERVE).unlink(missing_ok=True)

    def is_finished(self, state: RunState) -> bool:
        """Whether the run's record is complete and its notebook has not changed since."""
        if state.state != "finished" or state.sha256 != plans.digest(state.notebook):
            return False
        return record_of(self.folder / state.folder).get("state") == "finished"

    def adopt(self) -> None:
        """Mark runs as finished that ended although the journal lists them as running.

        Their record is finished, and papermill has written the notebook to its last cell.
        """
        for state in self.runs:
            if state.state == "running" and self.is_whole(state):
                state.state = "finished"
                state.seconds = record.read(self.folder / state.folder)["run"].get("seconds")
                self.adopted.append(state)

    def is_whole(self, state: RunState) -> bool:
        """Whether the run's notebook reached its end and its record is finished."""
        ended = _has_ended(self.folder / state.folder / this_notebook.EXECUTED)
        return ended and self.is_finished(replace(state, state="finished"))

    def short_record(self, state: RunState) -> Record:
        """A record for a run that ended before it wrote one."""
        content = {
            "schema": record.SCHEMA,
            "run": {
                "experiment": self.name,
                "notebook": state.notebook,
                "variant": state.variant or None,
                "started": _now(),
                "finished": _now(),
                **processes.own(),
            },
            "state": "running",
            "framework": {"name": state.framework, "kernel": state.kernel, "versions": {}},
        }
        return cast(Record, content)

    def _is_of_another(self, folder: Path) -> bool:
        """Whether a process with this mark belongs to an experiment that another command runs."""
        name = folder.relative_to(paths.RUNS.resolve()).parts[:1]
        return folder != self.folder and bool(name) and locks.may_be_held(locks.of_batch(name[0]))

    def _write(self) -> None:
        journal.write(self.folder, self.plan, self._about())

    def _about(self) -> dict[str, Any]:
        return {"started": self.started, "finished": self.finished}


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
    if previous and previous.plan.asks_for_the_same(plan):
        named = name is not None  # failed runs are repeated, because their cause may be fixed
        if previous.finished is None or (named and previous.failed):
            return previous
    if name is not None and is_taken(paths.RUNS / name):
        raise UserError(
            f"{paths.RUNS / name}: exists with another plan, or has finished; "
            f"choose another --name, or continue it with: rosetta run --resume {name}"
        )
    return Experiment(_free_folder(name), plan, _now())


def load(name: str) -> Experiment:
    """The experiment called ``name`` (or ``latest``) from its journal."""
    if name != LATEST:
        check_name(name)
    folder = Path(os.path.realpath(paths.RUNS / name))
    try:
        if folder.parent != paths.RUNS.resolve():
            raise UserError(f"{paths.RUNS / name}: leads to {folder}, out of {paths.RUNS}")
        plan, about = journal.read(folder)
    except FileNotFoundError:
        others = [folder.name for folder in journal.folders()]
        hint = f"the experiments are {', '.join(others)}" if others else "there is none yet"
        raise UserError(f"no experiment '{name}' in {paths.RUNS}: {hint}") from None
    experiment = Experiment(folder, plan, about.started, about.finished, resumed=True)
    experiment.adopt()
    return experiment


def write_record(folder: Path, content: Mapping[str, Any]) -> None:
    """Put a record the runner made or completed into a run's folder, checked."""
    record.check(content, folder)
    record.write(folder, content)


def record_of(folder: Path) -> dict[str, Any]:
    """The record in a run's folder; empty where there is none that can be read."""
    try:
        return dict(record.read(folder))
    except UserError:
        return {}


def complete(folder: Path, **said: Any) -> None:
    """Add to a record what only the runner knows, under ``run`` and at the top.

    A notebook that failed early has left no record, or one that cannot be read: then nothing.
    """
    if content := record_of(folder):
        run = {**content["run"], **said.pop("run", {})}
        write_record(folder, {**content, **said, "run": run})


def how_it_ended(state: RunState) -> str:
    """How an attempt that has to be made again ended, in one line."""
    if state.state == "running":
        return "killed while it was running"
    if state.state == "finished":
        return "finished, but its notebook was changed since, or its record is gone"
    return f"{state.state}: {state.reason or 'no reason was recorded'}"


@contextmanager
def held(plan: Plan | None, *, name: str | None, resume: str | None) -> Iterator[Experiment]:
    """Lock the experiment to work on (:func:`choose`) against other commands on all hosts."""
    while True:
        found = choose(plan, name=name, resume=resume).name
        what = f"another rosetta run works on the experiment '{found}'"
        instead = "" if resume else ", or give this one another --name"
        with ExitStack() as stack:
            try:
                stack.enter_context(locks.held(locks.of_batch(found), what, instead))
            except locks.HeldError:
                if name is None and resume is None and not (paths.RUNS / found).exists():
                    continue  # another command has just created it
                raise
            # Its state may have changed before the lock was held.
            experiment = choose(plan, name=None if resume else found, resume=resume and found)
            yield experiment
            return


def _has_ended(path: Path) -> bool:
    """Whether papermill reached the end of a notebook and wrote all of it."""
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells = [cell["metadata"]["papermill"] for cell in notebook["cells"]]
        ended = notebook["metadata"]["papermill"]["end_time"] is not None
        return ended and all(cell["status"] == "completed" for cell in cells)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _unsaid_processes(folder: Path) -> dict[str, Any]:
    """The section ``other_processes`` for a run on GPUs whose runner was killed."""
    content = record.read(folder)
    if content["devices"]["kind"] != "gpu" or "other_processes" in content:
        return {}
    reason = "the runner was killed before it recorded other processes on the GPUs"
    return {"other_processes": {"processes": [], "reason": reason}}


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


def check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,149}", name) or name in (LATEST, BY_HAND):
        raise UserError(
            f"experiment name '{name}': use letters, digits, dot, dash, underscore, 150 at most, "
            f"and not 'latest' or '{BY_HAND}'"
        )


def is_taken(folder: Path) -> bool:
    """Whether an experiment, or anything but an empty folder, is there."""
    return any(folder.iterdir()) if folder.is_dir() else os.path.lexists(folder)


def _free_folder(name: str | None) -> Path:
    if name is not None:
        return paths.RUNS.resolve() / name
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    names = [stamp, *(f"{stamp}-{number}" for number in range(2, 100))]
    free = (n for n in names if not ((paths.RUNS / n).exists() or locks.of_batch(n).exists()))
    return paths.RUNS.resolve() / next(free)


def _now() -> str:
    return datetime.now(UTC).isoformat()
