"""Run the framework notebooks of an experiment one after the other, then compare them.

An experiment is a folder ``runs/<experiment>/`` with one folder per run (``PyTorch_MultiGPU-2x/``),
a journal ``experiment.json`` with the state of each run, and at the end ``Compare.ipynb`` and
``report.html``. ``runs/latest`` is a link to the last experiment. The record of a run, not the
journal, decides whether the run is finished. On GPUs each environment is tested before the first
run (``helpers.runner.preflight``). If the test fails, the environment's runs are skipped.

Resuming keeps the finished runs of unchanged notebooks and repeats all others. An interrupted run
resumes from its last checkpoint. The same command resumes the last experiment if it was interrupted
(Ctrl-C, a crash, a reboot). It starts a new experiment if the last one reached its end, unless
``--resume`` names it, or ``--name`` names it and runs of it failed.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from helpers import paths, terminal
from helpers.errors import GO_ON, UnsupportedError, UserError, refusal
from helpers.frameworks import devices, installed
from helpers.launch import this_notebook
from helpers.runner import (
    experiments,
    hangs,
    kernel_processes,
    locks,
    messages,
    other_gpu_processes,
    preflight,
    progress_board,
    ranks,
    shutdown,
)
from helpers.runner.estimate import History
from helpers.runner.experiments import Experiment
from helpers.runner.plans import Plan, RunState
from helpers.runner.progress_board import Lines
from helpers.terminal import say
from helpers.training import checkpoint, heartbeat


def run(
    plan: Plan | None,
    *,
    name: str | None = None,
    resume: str | None = None,
    dry_run: bool = False,
    stall_minutes: float = hangs.MINUTES,
) -> int:
    """Run ``plan``, or continue the experiment ``resume``, and return the exit code.

    0: everything finished. 1: a run failed or was skipped, or Compare or the report failed.
    Ctrl-C, SIGTERM and a closed terminal raise KeyboardInterrupt once the kernel is gone and the
    record is written.

    Args:
        plan: what to run; None to resume.
        name: of the experiment's folder; the time by default.
        resume: the name of an experiment to continue.
        dry_run: show the plan, and start nothing.
        stall_minutes: after which a run that takes no step and prints nothing is ended; 0: never.
    """
    if dry_run:
        experiment = experiments.choose(plan, name=name, resume=resume)
        messages.announce(experiment, History(experiment.plan))
        say("Nothing was started (--dry-run).")
        return 0
    if name is not None:
        experiments.check_name(name)
    installed.required("papermill")  # takes a second, which is no run's time
    with (
        locks.only_one(),
        shutdown.in_order(),
        experiments.held(plan, name=name, resume=resume) as experiment,
    ):
        preflight.check(experiment)
        history = History(experiment.plan)
        messages.announce(experiment, history)
        return _begun(experiment, history, stall_minutes)


def _begun(experiment: Experiment, history: History, stall_minutes: float) -> int:
    """Open the experiment and work on it; whatever ends that, no process is left."""
    had = 0, 0
    try:
        experiment.open()
        had = _gained(experiment)
        return _work(experiment, history, stall_minutes)
    except OSError as error:
        raise UserError(
            f"{refusal(error)}; {experiment.folder} is kept: fix that, and the same command "
            "continues it"
        ) from error
    except KeyboardInterrupt as asked:
        with shutdown.held():
            _so_far(experiment)
            gained = _gained(experiment) > had
        said = f"{asked}; {experiment.folder} is kept, and the same command continues it"
        if not shutdown.by_slurm():
            raise KeyboardInterrupt(said) from None
        if not gained:  # so the next job would not either
            said += "; no epoch and no run was finished: ask for a longer time limit"
        raise shutdown.Stopped(said, GO_ON if gained else 1) from None
    finally:
        with shutdown.held():
            # What a signal at the wrong moment left.
            kernel_processes.stop_marked(experiment.folder)
            experiment.free_reserve()


def _work(experiment: Experiment, history: History, stall_minutes: float) -> int:
    """The runs, then what compares them; returns the exit code."""
    with progress_board.watching(experiment, history) as shown:
        preflight.test_environments(experiment, shown)
        for state in experiment.runs:
            if experiment.is_finished(state):
                shown.keep(state)
                continue
            _turn(experiment, state, shown, stall_minutes)
    not_compared = _compare(experiment, stall_minutes)
    headline, not_reported = _report(experiment)
    experiment.close()
    say(f"\n{messages.final_table(experiment)}\n\n{headline}\n")
    return messages.where_to_look(experiment, list(filter(None, [not_compared, not_reported])))


def _so_far(experiment: Experiment) -> None:
    """After Ctrl-C, report on the runs that finished; a job or a closed terminal has no time."""
    if shutdown.by_hand() and any(map(experiment.is_finished, experiment.runs)):
        headline, problem = _report(experiment)
        say(f"\n{messages.final_table(experiment)}\n\n{headline}\n")
        say(
            problem
            or f"The report is of the runs that finished: {experiment.folder / 'report.html'}"
        )


def _gained(experiment: Experiment) -> tuple[int, int]:
    """The finished runs, and the epochs in the checkpoints of the others."""
    epochs = [checkpoint.epochs_in(experiment.folder / run.folder) for run in experiment.runs]
    return sum(map(experiment.is_finished, experiment.runs)), sum(epochs)


def _turn(experiment: Experiment, state: RunState, shown: Lines, stall_minutes: float) -> None:
    """Run one notebook, and show its title and its outcome even if it is stopped in between."""
    shown.begin(state)
    try:
        _one(experiment, state, shown, stall_minutes)
    except (KeyboardInterrupt, OSError, MemoryError) as error:
        with shutdown.held():
            said = refusal(error) if isinstance(error, OSError) else str(error)
            _break_off(experiment, state, said or "the runner was out of memory")
        with suppress(OSError):
            shown.end(state)
        raise
    shown.end(state)


def _break_off(experiment: Experiment, state: RunState, reason: str) -> None:
    """Record why a run was interrupted; a run that had reached its end keeps its outcome."""
    kernel_processes.stop_marked(experiment.folder)
    experiment.free_reserve()
    if state.state in progress_board.SETTLED:  # noted, but not written
        experiment.note(state, state.state, state.reason)
    elif experiment.is_whole(state):
        folder = experiment.folder / state.folder
        experiments.complete(folder, run=state.about(), **preflight.test_record(experiment, state))
        experiment.note(state, "finished")
    else:
        _settle(experiment, state, "interrupted", reason, {"run": state.about()})


def _one(experiment: Experiment, state: RunState, shown: Lines, stall_minutes: float) -> None:
    """One run: a fresh folder, its own kernel and devices, a state at the end whatever happens."""
    folder = experiment.folder / state.folder
    resumes = _clear(folder)
    state.seconds = None
    tested = preflight.test_record(experiment, state)
    problem = preflight.why_skipped(experiment.plan, state)
    if problem := problem or preflight.failed_test(experiment, state):
        _settle(experiment, state, "skipped", problem, tested)
        return
    experiment.note(state, "running")
    gpus = preflight.gpus_here(experiment.plan, state)
    uuids = [gpu.uuid for gpu in gpus]
    with other_gpu_processes.Watch(uuids, experiment.folder, shown.warn) as watch:
        names = devices.cuda_names(gpus)
        failure = _execute(experiment, state, shown, stall_minutes, names, resumes)
        if failure is not None and ranks.lost_their_port(failure):
            reason = kernel_processes.reason_of(failure)
            shown.warn(f"{reason}; another process took a port that was free: the run starts again")
            failure = _execute(experiment, state, shown, stall_minutes, names, _clear(folder))
    with shutdown.held():  # else a signal could come between the record and the journal
        said = {"run": state.about(), **watch.as_record(), **tested}
        if failure is not None:
            cannot = getattr(failure, "ename", "") == UnsupportedError.__name__
            outcome = "skipped" if cannot else "failed"
            _settle(experiment, state, outcome, kernel_processes.reason_of(failure), said)
        elif experiments.record_of(folder).get("state") != "finished":
            reason = "the notebook ended without finishing its record"
            _settle(experiment, state, "failed", reason, said)
        else:
            experiments.complete(folder, **said)
            experiment.note(state, "finished")


def _execute(
    experiment: Experiment,
    state: RunState,
    shown: Lines,
    stall_minutes: float,
    gpus: str,
    resumes: bool,
) -> Exception | None:
    """Execute a run's notebook, in a kernel or by ranks; the error that ended it, or None.

    Raises:
        OSError: what the runner itself writes cannot be written.
    """
    plan, folder = experiment.plan, experiment.folder / state.folder
    given = plan.parameters()
    given |= {
        "devices": state.devices,
        "cores_per_device": plan.cores_here(),
        "run": str(folder),
        "seed": state.seed,
        "precision": state.precision,
        "execution": state.execution,
        "resume": resumes,
    }
    execute: Callable[..., None]

    def settled() -> bool:
        """Whether the run's notebook has written down how it ended."""
        return experiments.record_of(folder).get("state") != "running"

    shown.show(f"starting kernel {state.kernel}")
    started = time.monotonic()
    try:
        if ranks.are_needed(state.notebook, state.kernel, state.nodes):
            execute = partial(ranks.execute, order=preflight.order_of(plan, state))
        else:
            execute = partial(kernel_processes.execute, settled=settled)
        execute(
            paths.NOTEBOOKS / f"{state.notebook}.ipynb",
            folder / this_notebook.EXECUTED,
            given,
            kernel=state.kernel,
            reached=lambda section, cell, cells: shown.show(
                section or "introduction", f"cell {cell} of {cells}"
            ),
            heard=shown.tell,
            stall_minutes=stall_minutes,
            environment=_environment(experiment, state, gpus),
        )
        return None
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the runner failed, not the run
        return error
    finally:
        state.seconds = time.monotonic() - started


def _clear(folder: Path) -> bool:
    """Empty a run's folder, except for the checkpoint of an interrupted attempt.

    Return whether there is a checkpoint from which the run can resume.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name == checkpoint.FILE:
            continue
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return (folder / checkpoint.FILE).exists()


def _environment(experiment: Experiment, state: RunState, gpus: str) -> dict[str, str]:
    """The mark of the experiment, and only the run's own GPUs, whatever else is in the machine."""
    steps = experiment.folder / state.folder / heartbeat.FILE
    marked = {kernel_processes.MARK: str(experiment.folder), heartbeat.VARIABLE: str(steps)}
    simulated = preflight.is_simulated(experiment.plan, state)
    if not gpus and not simulated and isinstance(cores := experiment.plan.cores_here(), int):
        marked["OMP_NUM_THREADS"] = str(cores)  # which MXNet reads when it is imported
    return marked | ({"CUDA_VISIBLE_DEVICES": gpus} if gpus else {})


def _settle(
    experiment: Experiment,
    state: RunState,
    outcome: str,
    reason: str,
    said: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write ``outcome`` into the journal and the record, making a short record if there is none.

    A failed notebook has recorded its reason. A notebook that was interrupted before it began its
    record gets none, because its devices are not known.
    """
    folder = experiment.folder / state.folder
    content = experiments.record_of(folder) or experiment.short_record(state)
    if outcome != "interrupted" and content["state"] in ("failed", "skipped"):
        reason = content["reason"] or reason
    elif outcome != "interrupted" or "devices" in content:
        experiments.write_record(folder, content | {"state": outcome, "reason": reason})
    experiments.complete(folder, **said)
    experiment.note(state, outcome, reason)


def _compare(experiment: Experiment, stall_minutes: float) -> str | None:
    """Execute Compare.ipynb into the experiment's folder; why it failed, or None."""
    source = paths.NOTEBOOKS / "Compare.ipynb"
    kernel = "lab" if installed.problem("lab") is None else "python3"
    say(f"Comparing ({source.name})")
    try:
        with terminal.Line() as line:
            kernel_processes.execute(
                source,
                experiment.folder / source.name,
                {"runs": str(experiment.folder)},
                kernel=kernel,
                reached=lambda section, cell, cells: line.show("reading records, drawing"),
                stall_minutes=stall_minutes,
                environment={kernel_processes.MARK: str(experiment.folder)},
            )
    except Exception as error:
        return f"{source.name} failed: {kernel_processes.reason_of(error)}"
    return None


def _report(experiment: Experiment) -> tuple[str, str | None]:
    """Write report.html and what goes with it into the experiment's folder.

    Returns its headline ("" if it cannot be made), and why the report failed, or None.
    """
    # Imported here because it needs Jinja and the charts, which running a notebook does not.
    from helpers.results import conclusions, report

    say("Writing the report")
    headline = ""
    try:
        compared = report.load(experiment.folder)
        headline = conclusions.headline(compared)
        report.save(compared)
    except Exception as error:
        return headline, f"the report failed: {kernel_processes.reason_of(error)}"
    return headline, None
