"""Show the progress of experiments and their jobs, from journals, checkpoints and squeue."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate

from helpers import paths, terminal
from helpers.errors import UserError
from helpers.runner import experiments, journal
from helpers.runner.experiments import Experiment
from helpers.runner.plans import RunState
from helpers.runner.slurm import programs
from helpers.terminal import say
from helpers.training import checkpoint

NONE = "-"


@dataclass(frozen=True)
class Queued:
    """A job in the output of squeue."""

    number: str
    state: str
    left: str
    """The time left of its limit."""
    restarts: str
    why: str
    """The reason why it waits."""


def show(names: Sequence[str]) -> None:
    """A table of the runs of these experiments; without a name of all that are not finished."""
    jobs = queued()
    waiting = [
        name for name in names if name in jobs and not experiments.is_taken(paths.RUNS / name)
    ]
    begun = [experiments.load(name) for name in names if name not in waiting]
    found = begun if names else unfinished()
    if not found and not waiting:
        each = [f"job {job.number} ({name}), {job.state}" for name, job in jobs.items()]
        say(
            f"No experiment under {paths.RUNS} is unfinished. "
            f"Queued: {', '.join(each) or 'nothing'}"
        )
        return
    rows = [row for experiment in found for row in rows_of(experiment, jobs.get(experiment.name))]
    for name in waiting:
        rows.append([name, jobs[name].number, jobs[name].left, NONE, "not begun", NONE, NONE])
    header = ["Experiment", "Job", "Time left", "Run", "State", "Epoch", "Restarts"]
    say(terminal.table(header, rows))
    for name in (*(experiment.name for experiment in found), *waiting):
        if name in jobs and jobs[name].state == "PENDING":
            never = ", and would for ever" if jobs[name].why in programs.NEVER else ""
            say(f"{name}: job {jobs[name].number} waits ({jobs[name].why}){never}")
    for experiment in found:
        if experiment.name not in jobs and (experiment.finished is None or experiment.failed):
            say(f"{experiment.name}: no job of that name is queued; the same command continues it")


def unfinished() -> list[Experiment]:
    """The experiments under ``runs/`` that have not come to their end, by name."""
    found = []
    for folder in journal.folders():
        with suppress(UserError):  # not an experiment of ours; naming it prints the reason
            found.append(experiments.load(folder.name))
    return [experiment for experiment in found if experiment.finished is None]


def queued() -> dict[str, Queued]:
    """This user's jobs, by name; none where there is no Slurm."""
    columns = "JobID:20,State:20,TimeLeft:20,RestartCnt:20,Reason:60,Name:200"
    try:
        lines = programs.ask("squeue", "--me", "--noheader", f"--Format={columns}").splitlines()
    except UserError as error:
        say(f"No jobs are shown: {error}")
        return {}
    ends = list(accumulate(int(column.rpartition(":")[2]) for column in columns.split(",")))
    found: dict[str, Queued] = {}
    for line in lines:  # reasons and others' names have spaces in them
        *about, name = [line[a:b].strip() for a, b in zip([0, *ends], ends, strict=False)]
        if about[0].isdigit() and (name not in found or about[1] == "RUNNING"):
            found[name] = Queued(*about)
    return found


def rows_of(experiment: Experiment, job: Queued | None) -> list[list[str]]:
    """An experiment's rows; the job stands in the first."""
    about = [experiment.name, *((job.number, job.left) if job is not None else (NONE, NONE))]
    restarts = sum(len(state.earlier) for state in experiment.runs)
    if job is not None and job.restarts.isdigit():
        restarts = max(restarts, int(job.restarts))
    rows: list[list[str]] = []
    for state in experiment.runs:
        first = about if not rows else ["", "", ""]
        times = str(len(state.earlier) or NONE)
        rows.append([*first, state.title, state.state, epoch_of(experiment, state), times])
    if restarts and rows[0][-1] == NONE:
        rows[0][-1] = f"{restarts} of the job"
    return rows


def epoch_of(experiment: Experiment, state: RunState) -> str:
    """``3 of 5``, ``3 of 5, step 40``: what the record or the checkpoint of a run has."""
    folder = experiment.folder / state.folder
    content = experiments.record_of(folder)
    if "recipe" not in content:
        return NONE
    epochs = content["recipe"]["epochs"]
    if content["state"] == "finished":
        return f"{epochs} of {epochs}"
    done, steps = checkpoint.position(folder)
    return f"{done} of {epochs}" + (f", step {steps}" if steps else "")
