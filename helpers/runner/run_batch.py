"""The command's work: run the framework notebooks one after the other, then compare them.

A batch is a folder ``runs/<batch>/`` with one folder a run (``PyTorch_MultiGPU-2x/``), a journal
``experiment.json`` that says at every moment which run is in which state, and at the end
``Compare.ipynb`` and ``report.html``. ``runs/latest`` points at the last batch. The measure of
whether a run is finished is its own record, not the journal. On GPUs each environment is
tested before the first run (``helpers.runner.self_test``); runs of one that fails are skipped with
the reason.

Resuming: finished runs of an unchanged notebook are kept, all others are run again; one that was
cut short goes on from its last checkpoint. The last
batch is resumed by itself when it was cut short (Ctrl-C, a crash, a reboot) and the same plan is
asked for; a batch that came to its end, with failures or without, is followed by a new one
unless ``--resume`` names it, or ``--name`` does and runs of it failed.
"""

import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from helpers import paths, terminal
from helpers.errors import UnsupportedError, UserError, refusal
from helpers.frameworks import cpu_cores, installed, parameters_of, why_not
from helpers.frameworks import devices as device_helpers
from helpers.launch import launchers
from helpers.runner import (
    experiment,
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
from helpers.runner.experiment import Batch
from helpers.runner.plans import Plan, RunState
from helpers.runner.progress_board import Lines
from helpers.runner.self_test import before_runs as probes
from helpers.runner.slurm import limit, nodes
from helpers.terminal import say
from helpers.training import checkpoint, graceful_stop, heartbeat, image_data, parameters, record

COMPARE = "Compare"


def run(
    plan: Plan | None,
    *,
    name: str | None = None,
    resume: str | None = None,
    dry_run: bool = False,
    stall_minutes: float = hangs.MINUTES,
) -> int:
    """Carry out ``plan``, or go on with the batch ``resume``, and return the exit code.

    0: everything finished. 1: a run failed or was skipped, or Compare or the report failed.
    Ctrl-C, SIGTERM and a closed terminal raise KeyboardInterrupt once the kernel is gone and the
    record says so.

    Args:
        plan: what to run; None to resume.
        name: of the batch's folder; the time by default.
        resume: the name of a batch to go on with.
        dry_run: show the plan, and start nothing.
        stall_minutes: after which a run that takes no step and prints nothing is ended; 0: never.

    Raises:
        UserError, data_prep.DataError: before anything has started.
        UserError: the batch's folder, or the terminal, cannot be written any more.
    """
    if dry_run:
        batch = experiment.choose(plan, name=name, resume=resume)
        messages.announce(batch, History(batch.plan))
        say("Nothing was started (--dry-run).")
        return 0
    if name is not None:
        experiment.check_name(name)
    with (
        locks.only_one(),
        shutdown.in_order(),
        experiment.held(plan, name=name, resume=resume) as batch,
    ):
        _check(batch)
        history = History(batch.plan)
        messages.announce(batch, history)
        try:
            batch.open()
            return _work(batch, history, stall_minutes)
        except OSError as error:
            raise UserError(
                f"{refusal(error)}; {batch.folder} is kept: fix that, and the same command "
                "goes on with it"
            ) from error
        except KeyboardInterrupt as asked:
            more = f"{asked}; {batch.folder} is kept, and the same command continues it"
            raise shutdown.again(asked, more) from None
        finally:
            with shutdown.held():
                kernel_processes.stop_marked(batch.folder)  # what a signal at the wrong moment left
                batch.free_reserve()


def _work(batch: Batch, history: History, stall_minutes: float) -> int:
    """The runs, then what compares them; returns the exit code."""
    with progress_board.watching(batch, history) as shown:
        probes.probe(batch, shown)
        before = sum(map(batch.is_finished, batch.runs))
        for state in batch.runs:
            if batch.is_finished(state):
                shown.keep(state)
                continue
            if shutdown.wished():
                raise _in_order(batch, "stopped as asked between two runs", before)
            had = checkpoint.position(batch.folder / state.folder)
            try:
                _turn(batch, state, shown, stall_minutes)
            except shutdown.InOrder as asked:
                gained = checkpoint.position(batch.folder / state.folder) > had
                gained = gained or isinstance(asked, shutdown.NodeGone)
                raise _in_order(batch, str(asked), before, gained=gained) from None
    problems = [problem for problem in (_compare(batch, stall_minutes), _report(batch)) if problem]
    batch.close()
    say(f"\n{messages.final_table(batch)}\n")
    return messages.where_to_look(batch, problems)


def _in_order(batch: Batch, said: str, before: int, *, gained: bool = False) -> shutdown.InOrder:
    """A batch that was stopped in order: how far it is, and whether to go on with it makes sense.

    Args:
        batch: the batch.
        said: by the run that was stopped.
        before: how many of its runs were finished when this process began.
        gained: whether the run's checkpoint is of a later step than when it began.
    """
    done, runs = sum(map(batch.is_finished, batch.runs)), len(batch.runs)
    said = f"{said}; {done} of {runs} runs are finished"
    if gained or done > before:
        return shutdown.InOrder(said)
    return limit.without_gain(said)


def _turn(batch: Batch, state: RunState, shown: Lines, stall_minutes: float) -> None:
    """One run from its title to its outcome, also when it is stopped in between."""
    shown.begin(state)
    try:
        _one(batch, state, shown, stall_minutes)
    except (KeyboardInterrupt, OSError, MemoryError) as error:
        with shutdown.held():
            said = refusal(error) if isinstance(error, OSError) else str(error)
            _break_off(batch, state, said or "the runner was out of memory")
        with suppress(OSError):
            shown.end(state)
        raise
    shown.end(state)


def _break_off(batch: Batch, state: RunState, reason: str) -> None:
    """Say why a run was cut short; one that had come to its end stays as it ended."""
    kernel_processes.stop_marked(batch.folder)
    batch.free_reserve()
    if state.state in progress_board.SETTLED:  # noted, but not written
        batch.note(state, state.state, state.reason)
    elif batch.is_whole(state):
        folder = batch.folder / state.folder
        experiment.complete(folder, run=state.about(), **probes.as_record(batch, state))
        batch.note(state, "finished")
    else:
        _settle(batch, state, "interrupted", reason)


def _one(batch: Batch, state: RunState, shown: Lines, stall_minutes: float) -> None:
    """One run: a fresh folder, its own kernel and devices, a state at the end whatever happens."""
    folder = batch.folder / state.folder
    resumes = _clear(folder)
    state.seconds = None
    source = paths.NOTEBOOKS / f"{state.notebook}.ipynb"
    gpus = device_helpers.used(*_here(batch, state))
    probed = probes.as_record(batch, state)
    problem = installed.problem(state.kernel, gpus, state.devices) or probes.problem(batch, state)
    problem = problem or recipes.problem(batch.plan, state.notebook)
    unsuited = why_not(state.notebook, state.kernel, state.devices, state.nodes)
    problem = problem or unsuited or None
    if not source.exists():
        problem = f"{source} is gone"
    if problem is not None:
        _settle(batch, state, "skipped", problem, probed)
        return
    batch.note(state, "running")
    started = time.monotonic()
    given = (
        parameters_of(state.notebook, state.kernel)
        | batch.plan.parameters()
        | {
            "devices": state.devices,
            "cores_per_device": batch.plan.cores_here(),
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
        other_gpu_processes.Watch(uuids, batch.folder, shown.warn) as watch,
        shutdown.passing_on(asked),
    ):
        shown.show(f"starting kernel {state.kernel}")
        try:
            execute = (
                partial(ranks.execute, order=_order(batch, state))
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
                environment=_environment(batch, state, uuids),
            )
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # the runner's own trouble, of which the run is innocent
            if getattr(error, "ename", "") == graceful_stop.Stopped.__name__:
                raise shutdown.InOrder(str(error.evalue)) from None  # type: ignore[attr-defined]
            if state.nodes > 1 and (why := nodes.gone(error)):
                raise shutdown.NodeGone(f"{why}; {kernel_processes.reason_of(error)}") from None
            failure = error
        finally:
            state.seconds = time.monotonic() - started
    with shutdown.held():  # else a signal could come between the record and the journal
        said = {"run": state.about(), **watch.as_record(), **probed}
        if failure is not None:
            cannot = getattr(failure, "ename", "") == UnsupportedError.__name__
            outcome = "skipped" if cannot else "failed"
            _settle(batch, state, outcome, kernel_processes.reason_of(failure), said)
        elif record_state(folder) != "finished":
            reason = "the notebook ended without finishing its record"
            _settle(batch, state, "failed", reason, said)
        else:
            experiment.complete(folder, **said)
            batch.note(state, "finished")


def _clear(folder: Path) -> bool:
    """Empty a run's folder but for the checkpoint of an attempt that was cut short.

    Whether there is one, and the run can go on from it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.name == checkpoint.FILE:
            continue
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return (folder / checkpoint.FILE).exists()


def _environment(batch: Batch, state: RunState, gpus: list[str]) -> dict[str, str]:
    """The mark of the batch, and only the run's own GPUs, whatever else is in the machine.

    By UUID, because CUDA and NVML number GPUs differently.
    """
    steps = batch.folder / state.folder / heartbeat.FILE
    marked = {kernel_processes.MARK: str(batch.folder), heartbeat.VARIABLE: str(steps)}
    known = gpus or state.gpus == 0  # else it sees what the runner sees, which is none
    if not gpus and state.nodes == 1 and isinstance(cores := batch.plan.cores_here(), int):
        marked["OMP_NUM_THREADS"] = str(cores)  # which MXNet reads when it is imported
    return marked | ({"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if known else {})


def _here(batch: Batch, state: RunState) -> tuple[int, int | None]:
    """How many of a run's devices are on this machine, and on how many GPUs."""
    virtual = state.nodes > 1 and launchers.choose(batch.plan.launcher, state.nodes).virtual
    here = state.nodes if virtual else 1
    return here * state.devices, None if state.gpus is None else here * state.gpus


def _order(batch: Batch, state: RunState) -> ranks.Order:
    """What the ranks of a run are to be."""
    here = device_helpers.resolve(state.devices, state.gpus, cpu_cores.SHARED)
    return ranks.order(
        state.notebook,
        state.kernel,
        batch.plan.launcher,
        state.nodes,
        state.devices,
        here.kind,
        len(device_helpers.visible()) if here.kind == "gpu" else 0,
    )


def _settle(
    batch: Batch,
    state: RunState,
    outcome: str,
    reason: str,
    said: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write ``outcome`` into the journal and the record, making a short record if there is none.

    A notebook that failed has said why itself. One that was interrupted before it began a record
    leaves none: such a record would have to tell of devices that nobody has asked for.
    """
    folder = batch.folder / state.folder
    try:
        content = record.read(folder)
    except UserError:
        content = batch.short_record(state)
    if outcome == "interrupted":
        if "devices" in content:
            experiment.write_record(folder, content | {"state": outcome, "reason": reason})
    elif content["state"] not in ("failed", "skipped"):
        experiment.write_record(folder, content | {"state": outcome, "reason": reason})
    else:
        reason = content["reason"]
    experiment.complete(folder, **said)
    batch.note(state, outcome, reason)


def record_state(folder: Path) -> str | None:
    """The state in the record of a run's folder; None where there is no record."""
    try:
        return str(record.read(folder)["state"])
    except UserError:
        return None


def _check(batch: Batch) -> None:
    """Everything that can be wrong with the user's input, before the first kernel starts.

    This also makes the generated images where they are missing, once and where it can be seen.
    """
    recipes.check(batch.plan)
    for state in batch.runs:
        if not batch.is_finished(state):
            selection.check_parameters_cell(state.notebook)
            _check_launcher(batch, state)
    # The largest global batch to fill.
    most = max(batch.runs, key=lambda state: state.nodes * state.devices)
    virtual = most.nodes > 1 and launchers.choose(batch.plan.launcher, most.nodes).virtual
    for seed in dict.fromkeys(state.seed for state in batch.runs):
        setup = parameters.resolve(
            "check",
            **batch.plan.parameters(),
            devices=most.devices,
            nodes=most.nodes,
            virtual_nodes=virtual,
            gpus=most.gpus,
            run=batch.folder / "check",
            seed=seed,
        )
        setup.recipe.steps(len(image_data.load_data(setup).train))
    image_data.check_images(setup.recipe.recipe, setup.data)


def _check_launcher(batch: Batch, state: RunState) -> None:
    """Whether the launcher can start a run's ranks; of a run that will be skipped nobody asks."""
    if not (paths.NOTEBOOKS / f"{state.notebook}.ipynb").exists() or (
        installed.problem(state.kernel)
        or why_not(state.notebook, state.kernel, state.devices, state.nodes)
        or not ranks.are_needed(state.notebook, state.kernel, state.nodes)
    ):
        return
    try:
        ranks.check(_order(batch, state), state.kernel)
    except UserError as error:
        raise UserError(f"{state.notebook}: {error}") from None


def _compare(batch: Batch, stall_minutes: float) -> str | None:
    """Execute Compare.ipynb into the batch's folder; why it failed, or None."""
    source = paths.NOTEBOOKS / f"{COMPARE}.ipynb"
    kernel = "lab" if installed.problem("lab") is None else "python3"
    say(f"Comparing ({source.name})")
    try:
        with terminal.Line() as line:
            kernel_processes.execute(
                source,
                batch.folder / source.name,
                {"runs": str(batch.folder)},
                kernel=kernel,
                reached=lambda section, cell, cells: line.show("reading records, drawing"),
                stall_minutes=stall_minutes,
                environment={kernel_processes.MARK: str(batch.folder)},
            )
    except Exception as error:
        return f"{source.name} failed: {kernel_processes.reason_of(error)}"
    return None


def _report(batch: Batch) -> str | None:
    """Write report.html and what goes with it into the batch's folder; why not, or None."""
    # Imported here because it needs Jinja and the charts, which running a notebook does not.
    from helpers.results import report

    say("Writing the report")
    try:
        report.write(batch.folder)
    except Exception as error:
        return f"the report failed: {kernel_processes.reason_of(error)}"
    return None
