"""Run the framework notebooks of an experiment one after the other, then compare them.

An experiment is a folder ``runs/<experiment>/`` with one folder per run (``PyTorch_MultiGPU-2x/``),
a journal ``experiment.json`` with the state of each run, and at the end ``Compare.ipynb`` and
``report.html``. ``runs/latest`` is a link to the last experiment. The record of a run, not the
journal, decides whether the run is finished. On GPUs each environment is tested before the first
run (``helpers.runner.self_test``). If the test fails, the environment's runs are skipped.

Resuming keeps the finished runs of unchanged notebooks and repeats all others. An interrupted run
resumes from its last checkpoint. The same command resumes the last experiment if it was interrupted
(Ctrl-C, a crash, a reboot). It starts a new experiment if the last one reached its end, unless
``--resume`` names it, or ``--name`` names it and runs of it failed.
"""

import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from helpers import paths, record, terminal
from helpers.errors import UnsupportedError, UserError, refusal
from helpers.frameworks import cpu_cores, installed, parameters_of, why_not
from helpers.frameworks import devices as device_helpers
from helpers.launch import launchers
from helpers.runner import (
    experiments,
    hangs,
    kernel_processes,
    locks,
    messages,
    other_gpu_processes,
    progress_board,
    ranks,
    recipes,
    selection,
    shutdown,
)
from helpers.runner.estimate import History
from helpers.runner.experiments import Experiment
from helpers.runner.plans import Plan, RunState
from helpers.runner.progress_board import Lines
from helpers.runner.self_test import before_runs as self_tests
from helpers.runner.slurm import limit, nodes
from helpers.terminal import say
from helpers.training import checkpoint, graceful_stop, heartbeat, image_data, parameters

COMPARE = "Compare"


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

    Raises:
        UserError, data_prep.DataError: before anything has started.
        UserError: the experiment's folder, or the terminal, cannot be written any more.
    """
    if dry_run:
        experiment = experiments.choose(plan, name=name, resume=resume)
        messages.announce(experiment, History(experiment.plan))
        say("Nothing was started (--dry-run).")
        return 0
    if name is not None:
        experiments.check_name(name)
    with (
        locks.only_one(),
        shutdown.in_order(),
        experiments.held(plan, name=name, resume=resume) as experiment,
    ):
        _check(experiment)
        history = History(experiment.plan)
        messages.announce(experiment, history)
        try:
            experiment.open()
            return _work(experiment, history, stall_minutes)
        except OSError as error:
            raise UserError(
                f"{refusal(error)}; {experiment.folder} is kept: fix that, and the same command "
                "continues it"
            ) from error
        except KeyboardInterrupt as asked:
            more = f"{asked}; {experiment.folder} is kept, and the same command continues it"
            raise shutdown.again(asked, more) from None
        finally:
            with shutdown.held():
                kernel_processes.stop_marked(
                    experiment.folder
                )  # what a signal at the wrong moment left
                experiment.free_reserve()


def _work(experiment: Experiment, history: History, stall_minutes: float) -> int:
    """The runs, then what compares them; returns the exit code."""
    with progress_board.watching(experiment, history) as shown:
        self_tests.run_all(experiment, shown)
        before = sum(map(experiment.is_finished, experiment.runs))
        for state in experiment.runs:
            if experiment.is_finished(state):
                shown.keep(state)
                continue
            if shutdown.wished():
                raise _in_order(experiment, "stopped as asked between two runs", before)
            had = checkpoint.position(experiment.folder / state.folder)
            try:
                _turn(experiment, state, shown, stall_minutes)
            except shutdown.InOrder as asked:
                gained = checkpoint.position(experiment.folder / state.folder) > had
                gained = gained or isinstance(asked, shutdown.NodeGone)
                raise _in_order(experiment, str(asked), before, gained=gained) from None
    problems = [
        problem for problem in (_compare(experiment, stall_minutes), _report(experiment)) if problem
    ]
    experiment.close()
    say(f"\n{messages.final_table(experiment)}\n")
    return messages.where_to_look(experiment, problems)


def _in_order(
    experiment: Experiment, said: str, before: int, *, gained: bool = False
) -> shutdown.InOrder:
    """How far a stopped experiment is, and whether continuing it makes sense.

    Args:
        experiment: the experiment.
        said: by the run that was stopped.
        before: how many of its runs were finished when this process began.
        gained: whether the run's checkpoint is of a later step than when it began.
    """
    done, runs = sum(map(experiment.is_finished, experiment.runs)), len(experiment.runs)
    said = f"{said}; {done} of {runs} runs are finished"
    if gained or done > before:
        return shutdown.InOrder(said)
    return limit.without_gain(said)


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
        experiments.complete(folder, run=state.about(), **self_tests.as_record(experiment, state))
        experiment.note(state, "finished")
    else:
        _settle(experiment, state, "interrupted", reason)


def _one(experiment: Experiment, state: RunState, shown: Lines, stall_minutes: float) -> None:
    """One run: a fresh folder, its own kernel and devices, a state at the end whatever happens."""
    folder = experiment.folder / state.folder
    resumes = _clear(folder)
    state.seconds = None
    source = paths.NOTEBOOKS / f"{state.notebook}.ipynb"
    gpus = device_helpers.used(*_here(experiment, state))
    tested = self_tests.as_record(experiment, state)
    problem = installed.problem(state.kernel, gpus, state.devices) or self_tests.problem(
        experiment, state
    )
    problem = problem or recipes.problem(experiment.plan, state.notebook)
    unsuited = why_not(state.notebook, state.kernel, state.devices, state.nodes)
    problem = problem or unsuited or None
    if not source.exists():
        problem = f"{source} is gone"
    if problem is not None:
        _settle(experiment, state, "skipped", problem, tested)
        return
    experiment.note(state, "running")
    started = time.monotonic()
    given = (
        parameters_of(state.notebook, state.kernel)
        | experiment.plan.parameters()
        | {
            "devices": state.devices,
            "cores_per_device": experiment.plan.cores_here(),
            "gpus": "auto" if state.gpus is None else state.gpus,
            "run": str(folder),
            "seed": state.seed,
            "precision": state.precision,
            "resume": resumes,
        }
    )
    uuids = [gpu.uuid for gpu in gpus]
    failure: Exception | None = None
    asked = partial(graceful_stop.wish, folder)
    with (
        other_gpu_processes.Watch(uuids, experiment.folder, shown.warn) as watch,
        shutdown.passing_on(asked),
    ):
        shown.show(f"starting kernel {state.kernel}")
        try:
            execute = (
                partial(ranks.execute, order=_order(experiment, state))
                if ranks.are_needed(state.notebook, state.kernel, state.nodes)
                else partial(
                    kernel_processes.execute, settled=lambda: record_state(folder) != "running"
                )
            )
            execute(
                source,
                folder / "notebook.ipynb",
                given,
                kernel=state.kernel,
                reached=lambda section, cell, cells: shown.show(
                    section or "introduction", f"cell {cell} of {cells}"
                ),
                heard=shown.tell,
                stall_minutes=stall_minutes,
                environment=_environment(experiment, state, uuids),
            )
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the runner failed, not the run
            if getattr(error, "ename", "") == graceful_stop.Stopped.__name__:
                raise shutdown.InOrder(str(error.evalue)) from None  # type: ignore[attr-defined]
            if state.nodes > 1 and (why := nodes.gone(error)):
                raise shutdown.NodeGone(f"{why}; {kernel_processes.reason_of(error)}") from None
            failure = error
        finally:
            state.seconds = time.monotonic() - started
    with shutdown.held():  # else a signal could come between the record and the journal
        said = {"run": state.about(), **watch.as_record(), **tested}
        if failure is not None:
            cannot = getattr(failure, "ename", "") == UnsupportedError.__name__
            outcome = "skipped" if cannot else "failed"
            _settle(experiment, state, outcome, kernel_processes.reason_of(failure), said)
        elif record_state(folder) != "finished":
            reason = "the notebook ended without finishing its record"
            _settle(experiment, state, "failed", reason, said)
        else:
            experiments.complete(folder, **said)
            experiment.note(state, "finished")


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


def _environment(experiment: Experiment, state: RunState, gpus: list[str]) -> dict[str, str]:
    """The mark of the experiment, and only the run's own GPUs, whatever else is in the machine.

    By UUID, because CUDA and NVML number GPUs differently.
    """
    steps = experiment.folder / state.folder / heartbeat.FILE
    marked = {kernel_processes.MARK: str(experiment.folder), heartbeat.VARIABLE: str(steps)}
    known = gpus or state.gpus == 0  # else it sees what the runner sees, which is none
    if not gpus and state.nodes == 1 and isinstance(cores := experiment.plan.cores_here(), int):
        marked["OMP_NUM_THREADS"] = str(cores)  # which MXNet reads when it is imported
    return marked | ({"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if known else {})


def _here(experiment: Experiment, state: RunState) -> tuple[int, int | None]:
    """How many of a run's devices are on this machine, and on how many GPUs."""
    virtual = state.nodes > 1 and launchers.choose(experiment.plan.launcher, state.nodes).virtual
    here = state.nodes if virtual else 1
    return here * state.devices, None if state.gpus is None else here * state.gpus


def _order(experiment: Experiment, state: RunState) -> ranks.Order:
    """What the ranks of a run are to be."""
    here = device_helpers.resolve(state.devices, state.gpus, cpu_cores.SHARED)
    return ranks.order(
        state.notebook,
        state.kernel,
        experiment.plan.launcher,
        state.nodes,
        state.devices,
        here.kind,
        len(device_helpers.visible()) if here.kind == "gpu" else 0,
    )


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
    try:
        content = record.read(folder)
    except UserError:
        content = experiment.short_record(state)
    if outcome == "interrupted":
        if "devices" in content:
            experiments.write_record(folder, {**content, "state": outcome, "reason": reason})
    elif content["state"] not in ("failed", "skipped"):
        experiments.write_record(folder, {**content, "state": outcome, "reason": reason})
    else:
        reason = content["reason"] or reason
    experiments.complete(folder, **said)
    experiment.note(state, outcome, reason)


def record_state(folder: Path) -> str | None:
    """The state in the record of a run's folder; None where there is no record."""
    try:
        return str(record.read(folder)["state"])
    except UserError:
        return None


def _check(experiment: Experiment) -> None:
    """Check the user's input before the first kernel starts.

    This also makes the generated images where they are missing, once and where it can be seen.
    """
    recipes.check(experiment.plan)
    for state in experiment.runs:
        if not experiment.is_finished(state):
            selection.check_parameters_cell(state.notebook)
            _check_launcher(experiment, state)
    # The largest global batch to fill.
    most = max(experiment.runs, key=lambda state: state.nodes * state.devices)
    virtual = most.nodes > 1 and launchers.choose(experiment.plan.launcher, most.nodes).virtual
    for seed in dict.fromkeys(state.seed for state in experiment.runs):
        setup = parameters.resolve(
            "check",
            **experiment.plan.parameters(),
            devices=most.devices,
            nodes=most.nodes,
            simulated_nodes=virtual,
            gpus=most.gpus,
            run=experiment.folder / "check",
            seed=seed,
        )
        setup.recipe.steps(len(image_data.load_data(setup).train))
    image_data.check_images(setup.recipe.recipe, setup.data)


def _check_launcher(experiment: Experiment, state: RunState) -> None:
    """Check that the launcher can start a run's ranks, unless the run will be skipped."""
    if not (paths.NOTEBOOKS / f"{state.notebook}.ipynb").exists() or (
        installed.problem(state.kernel)
        or why_not(state.notebook, state.kernel, state.devices, state.nodes)
        or not ranks.are_needed(state.notebook, state.kernel, state.nodes)
    ):
        return
    try:
        ranks.check(_order(experiment, state), state.kernel)
    except UserError as error:
        raise UserError(f"{state.notebook}: {error}") from None


def _compare(experiment: Experiment, stall_minutes: float) -> str | None:
    """Execute Compare.ipynb into the experiment's folder; why it failed, or None."""
    source = paths.NOTEBOOKS / f"{COMPARE}.ipynb"
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


def _report(experiment: Experiment) -> str | None:
    """Write report.html and what goes with it into the experiment's folder; why not, or None."""
    # Imported here because it needs Jinja and the charts, which running a notebook does not.
    from helpers.results import report

    say("Writing the report")
    try:
        report.write(experiment.folder)
    except Exception as error:
        return f"the report failed: {kernel_processes.reason_of(error)}"
    return None
