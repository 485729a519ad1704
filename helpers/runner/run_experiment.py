"""Run the framework notebooks of an experiment one after the other, then compare them.

An experiment is a folder ``runs/<experiment>/`` with what was asked for (``experiment.json``), one
folder per run (``PyTorch_MultiGPU-2x/``), and at the end ``Compare.ipynb`` and ``report.html``.
``runs/latest`` is a link to the last experiment. A run is done if its record says so. On GPUs each
environment is tested before the first run (``helpers.runner.preflight``). If the test fails, the
environment's runs are skipped.

Resuming keeps the finished runs and repeats all others. An interrupted run resumes from its last
checkpoint. The same command resumes the last experiment if it was interrupted (Ctrl-C, a crash, a
reboot). It starts a new experiment if the last one reached its end, unless ``--resume`` names it,
or ``--name`` names it and runs of it failed.
"""

import shutil
import signal
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from helpers import paths, terminal
from helpers.errors import GO_ON, UnsupportedError, UserError, refusal
from helpers.frameworks import devices
from helpers.record import this_notebook
from helpers.runner import (
    experiments,
    hangs,
    kernel_processes,
    locks,
    messages,
    other_gpu_processes,
    preflight,
    ranks,
    shutdown,
)
from helpers.runner.experiments import Experiment
from helpers.runner.plans import Plan, PlannedRun
from helpers.runner.progress_board import Board
from helpers.terminal import say
from helpers.training import checkpoint, epoch_lines


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
    Ctrl-C, SIGTERM and a closed terminal raise KeyboardInterrupt once the processes have ended and
    the record is written. ``stall_minutes`` is as of ``ranks.run``.
    """
    if dry_run:
        experiment = experiments.choose(plan, name=name, resume=resume)
        messages.announce(experiment)
        say("Nothing was started (--dry-run).")
        return 0
    if name is not None:
        experiments.check_name(name)
    import_module("nbformat")  # takes a moment, which counts for no run
    with (
        locks.only_one(),
        shutdown.in_order(),
        experiments.held(plan, name=name, resume=resume) as experiment,
    ):
        preflight.check(experiment)
        messages.announce(experiment)
        say(f"See the finished runs at any time: rosetta open {experiment.name}")
        experiment.stall_minutes = stall_minutes
        return _begun(experiment)


def _begun(experiment: Experiment) -> int:
    """Open the experiment and work on it, and say how to continue if that is cut short."""
    had = 0, 0
    try:
        experiment.open()
        had = _gained(experiment)
        return _work(experiment)
    except OSError as error:
        raise UserError(
            f"{refusal(error)}; {experiment.folder} is kept: fix that, and the same command "
            "continues it"
        ) from error
    except KeyboardInterrupt as asked:
        said = f"{asked}; {experiment.folder} is kept, and the same command continues it"
        if not shutdown.by(signal.SIGUSR1):
            raise KeyboardInterrupt(said) from None
        gained = _gained(experiment) > had
        if not gained:  # so the next job would not either
            said += "; no epoch and no run was finished: ask for a longer time limit"
        raise shutdown.Stopped(said, GO_ON if gained else 1) from None


def _work(experiment: Experiment) -> int:
    """The runs, then what compares them; returns the exit code."""
    with Board(experiment) as shown:
        preflight.test_environments(experiment, shown.warn)
        for planned in experiment.runs:
            if experiment.is_finished(planned):
                shown.keep(planned)
            else:
                _turn(experiment, planned, shown)
        not_compared = _compare(experiment, shown)
    problems = list(filter(None, [not_compared, _report(experiment)]))
    if not problems:
        experiment.close()
    return messages.where_to_look(experiment, problems)


def _gained(experiment: Experiment) -> tuple[int, int]:
    """The finished runs, and the epochs in the checkpoints of the others."""
    epochs = [checkpoint.epochs_in(experiment.folder_of(planned)) for planned in experiment.runs]
    return sum(map(experiment.is_finished, experiment.runs)), sum(epochs)


def _turn(experiment: Experiment, run: PlannedRun, shown: Board) -> None:
    """Run one notebook, and show its title and its outcome even if it is stopped in between."""
    shown.begin(run)
    try:
        with shutdown.held():  # the loop that waits for the run acts on a signal
            _one(experiment, run, shown)
    finally:
        with suppress(OSError):
            shown.end(run)


def _one(experiment: Experiment, run: PlannedRun, shown: Board) -> None:
    """One run: a fresh folder, its own processes and devices, a record whatever happens."""
    folder = experiment.folder_of(run)
    kernel_processes.end_left(folder)
    resumes = _clear(folder)
    tested = experiment.self_tests.get(run.self_test)
    problem = preflight.why_skipped(experiment.plan, run)
    if tested and tested.reason is not None:
        problem = problem or tested.in_words
    if problem:
        _settle(experiment, run, "skipped", problem)
        return
    gpus = preflight.gpus_here(experiment.plan, run)
    with other_gpu_processes.watched([gpu.uuid for gpu in gpus], shown.warn) as others:
        try:
            failure = _execute(experiment, run, shown, devices.cuda_names(gpus), resumes)
        except (KeyboardInterrupt, OSError) as error:
            reason = refusal(error) if isinstance(error, OSError) else str(error)
            with suppress(OSError):  # the disk may be full
                _settle(experiment, run, "interrupted", reason)
            raise
    reason = "the notebook ended without finishing its record"
    if failure is not None:
        reason = kernel_processes.reason_of(failure)
    cannot = getattr(failure, "ename", "") == UnsupportedError.__name__
    about = {"other_processes": others} if gpus else {}
    _settle(experiment, run, "skipped" if cannot else "failed", reason, **about)


def _execute(
    experiment: Experiment, run: PlannedRun, shown: Board, gpus: str, resumes: bool
) -> Exception | None:
    """Execute a run's notebook; the error that ended it, or None.

    OSError is raised where what the runner itself writes cannot be written.
    """
    plan, folder = experiment.plan, experiment.folder_of(run)
    given = plan.parameters() | {
        "devices": run.devices,
        "cores_per_device": plan.cores_here(),
        "run": str(folder),
        "seed": run.seed,
        "precision": run.precision,
        "execution": run.execution,
        "resume": resumes,
    }
    shown.show(f"starting kernel {run.kernel}")
    try:
        ranks.execute(
            paths.NOTEBOOKS / f"{run.notebook}.ipynb",
            folder / this_notebook.EXECUTED,
            given,
            preflight.order_of(plan, run),
            kernel=run.kernel,
            reached=shown.reached,
            heard=shown.tell,
            settled=lambda: experiment.record_of(run)["state"] != "running",
            stall_minutes=experiment.stall_minutes,
            environment=_environment(experiment, run, gpus),
        )
        return None
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the runner failed, not the run
        return error


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


def _environment(experiment: Experiment, run: PlannedRun, gpus: str) -> dict[str, str]:
    """The file that shows progress, and the run's own GPUs, whatever else is in the machine."""
    given = {epoch_lines.VARIABLE: str(experiment.folder_of(run) / epoch_lines.FILE)}
    simulated = preflight.is_simulated(experiment.plan, run)
    if not gpus and not simulated and isinstance(cores := experiment.plan.cores_here(), int):
        given["OMP_NUM_THREADS"] = str(cores)  # which MXNet reads when it is imported
    return given | ({"CUDA_VISIBLE_DEVICES": gpus} if gpus else {})


def _settle(
    experiment: Experiment, run: PlannedRun, outcome: str, reason: str, **said: Any
) -> None:
    """Write ``outcome`` into the record unless it says how the run ended, and what else is known.

    A run that ended before it began its record gets a short one. One that was interrupted then gets
    none, because its devices are not known.
    """
    content = experiment.record_of(run)
    if "run" not in content:
        content = experiment.short_record(run)
    if content["state"] not in experiments.SETTLED:
        if outcome == "interrupted" and "devices" not in content:
            return
        content |= {"state": outcome, "reason": reason}
    experiment.write_record(run, content | said)


def _compare(experiment: Experiment, shown: Board) -> str | None:
    """Execute Compare.ipynb into the experiment's folder; why it failed, or None."""
    source = paths.NOTEBOOKS / "Compare.ipynb"
    shown.note(f"Comparing ({source.name})")
    try:
        ranks.execute(
            source,
            experiment.folder / source.name,
            {"runs": str(experiment.folder)},
            kernel="lab" if devices.problem("lab") is None else "python3",
            stall_minutes=experiment.stall_minutes,
        )
    except Exception as error:
        return f"{source.name} failed: {kernel_processes.reason_of(error)}"
    return None


def _report(experiment: Experiment) -> str | None:
    """Write the report, and print its first table and headline; why that failed, or None."""
    # Imported here because it needs Jinja and the charts, which running a notebook does not.
    from helpers.results import comparison_tables, conclusions, report

    say("Writing the report")
    try:
        compared = report.load(experiment.folder)
        found = comparison_tables.runs(compared).frame.drop(columns="evidence").reset_index()
        text = terminal.table(list(map(str, found.columns)), found.astype(str).values.tolist())
        say(f"\n{text}\n\n{conclusions.headline(compared)}\n")
        report.save(compared)
    except Exception as error:
        return f"the report failed: {kernel_processes.reason_of(error)}"
    return None
