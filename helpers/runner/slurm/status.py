"""How far the batches of jobs are, told on a login node: from journals, checkpoints and squeue."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from helpers import paths, terminal
from helpers.errors import UserError
from helpers.runner import batch_folder, journal
from helpers.runner.batch_folder import Batch
from helpers.runner.plans import RunState
from helpers.runner.slurm import programs
from helpers.terminal import say
from helpers.training import checkpoint, record

NONE = "-"


@dataclass(frozen=True)
class Queued:
    """A job as squeue tells of it."""

    number: str
    state: str
    left: str
    """Of its time limit."""
    restarts: str
    why: str
    """What it waits for."""


def show(names: Sequence[str]) -> None:
    """A table of the runs of these batches; without a name of all that are not finished.

    Raises:
        UserError: there is no such batch, or none at all.
    """
    batches = [batch_folder.load(name) for name in names] if names else unfinished()
    jobs = queued()
    if not batches:
        waiting = [f"job {job.number} ({name}), {job.state}" for name, job in jobs.items()]
        say(f"No batch under {paths.RUNS} is unfinished. Queued: {', '.join(waiting) or 'nothing'}")
        return
    rows = [row for batch in batches for row in rows_of(batch, jobs.get(batch.name))]
    header = ["Batch", "Job", "Time left", "Run", "State", "Epoch", "Restarts"]
    say(terminal.table(header, rows))
    for batch in batches:
        job = jobs.get(batch.name)
        if job is not None and job.state == "PENDING":
            say(f"{batch.name}: job {job.number} waits ({job.why})")
        elif job is None and batch.finished is None:
            say(f"{batch.name}: no job of that name is queued; the same command goes on with it")


def unfinished() -> list[Batch]:
    """The batches under ``runs/`` that have not come to their end, by name."""
    found = []
    for path in sorted(paths.RUNS.glob(f"*/{journal.FILE}")):
        if path.parent.is_symlink():
            continue
        try:
            batch = batch_folder.load(path.parent.name)
        except UserError:
            continue  # a folder that somebody has put there; a batch by its name says why
        if batch.finished is None:
            found.append(batch)
    return found


def queued() -> dict[str, Queued]:
    """This user's jobs, by name; none where there is no Slurm."""
    how = "--Format=Name:200,JobID:20,State:20,TimeLeft:20,RestartCnt:20,Reason:60"
    try:
        lines = programs.ask("squeue", "--me", "--noheader", how).splitlines()
    except UserError as error:
        say(f"No jobs are shown: {error}")
        return {}
    words = [re.split(r"\s+", line.strip(), maxsplit=5) for line in lines]
    return {found[0]: Queued(*found[1:]) for found in words if len(found) == 6}


def rows_of(batch: Batch, job: Queued | None) -> list[list[str]]:
    """A batch's rows; the job stands in the first."""
    about = [batch.name, *((job.number, job.left) if job is not None else (NONE, NONE))]
    restarts = sum(len(state.earlier) for state in batch.runs)
    if job is not None and job.restarts.isdigit():
        restarts = max(restarts, int(job.restarts))
    rows: list[list[str]] = []
    for state in batch.runs:
        first = about if not rows else ["", "", ""]
        rows.append([*first, state.title, state.state, epoch_of(batch, state), _times(state)])
    if restarts and rows[0][-1] == NONE:
        rows[0][-1] = f"{restarts} of the job"
    return rows


def epoch_of(batch: Batch, state: RunState) -> str:
    """``3 of 5``, ``3 of 5, step 40``: what the record or the checkpoint of a run has."""
    folder = batch.folder / state.folder
    try:
        content = record.read(folder)
    except UserError:
        return NONE
    if "recipe" not in content:
        return NONE
    epochs = content["recipe"]["epochs"]
    if content["state"] == "finished":
        return f"{epochs} of {epochs}"
    done, steps = checkpoint.position(folder)
    return f"{done} of {epochs}" + (f", step {steps}" if steps else "")


def _times(state: RunState) -> str:
    return str(len(state.earlier)) if state.earlier else NONE
