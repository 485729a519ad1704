"""The command's work: run the framework notebooks one after the other, then compare them.

A batch is a folder ``runs/<batch>/`` with one folder a run (``PyTorch_MultiGPU-2x/``), a journal
``batch.json`` that says at every moment which run is in which state, and at the end
``Compare.ipynb`` and ``report.html``. ``runs/latest`` points at the last batch. The measure of
whether a run is finished is its own record, not the journal.

Resuming: finished runs of an unchanged notebook are kept, all others are run again; one that was
cut short goes on from its last checkpoint. The last
batch is resumed by itself when it was cut short (Ctrl-C, a crash, a reboot) and the same plan is
asked for; a batch that came to its end, with failures or without, is followed by a new one
unless ``--resume`` names it.
"""

import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from helpers import (
    batches,
    board,
    checkpoint,
    kernels,
    neighbours,
    overview,
    parameters,
    paths,
    progress,
    record,
)
from helpers import devices as device_helpers
from helpers.batches import Batch
from helpers.board import Lines
from helpers.errors import UnsupportedError, UserError
from helpers.estimate import History
from helpers.plans import Plan, RunState

COMPARE = "Compare"


def run(
    plan: Plan | None, *, name: str | None = None, resume: str | None = None, dry_run: bool = False
) -> int:
    """Carry out ``plan``, or go on with the batch ``resume``, and return the exit code.

    0: everything finished. 1: a run failed or was skipped, or Compare or the report failed.
    Ctrl-C, SIGTERM and a closed terminal raise KeyboardInterrupt once the kernel is gone and the
    record says so.

    Raises:
        UserError, data_prep.DataError: before anything has started.
    """
    if dry_run:
        batch = batches.choose(plan, name=name, resume=resume)
        overview.announce(batch, History(batch.plan))
        print("Nothing was started (--dry-run).")
        return 0
    with batches.only_one(), terminated_is_interrupted():
        batch = batches.choose(plan, name=name, resume=resume)
        _check(batch)
        history = History(batch.plan)
        overview.announce(batch, history)
        batch.open()
        try:
            with board.watching(batch, history) as shown:
                for state in batch.runs:
                    if batch.is_finished(state):
                        shown.keep(state)
                    else:
                        _turn(batch, state, shown)
        except KeyboardInterrupt:
            print(f"Kept: {batch.folder}; the same command goes on with it", flush=True)
            raise
        problems = [problem for problem in (_compare(batch), _report(batch)) if problem]
        batch.close()
        print(f"\n{overview.final_table(batch)}\n")
        return overview.where_to_look(batch, problems)


def _turn(batch: Batch, state: RunState, shown: Lines) -> None:
    """One run from its title to its outcome, also when it is stopped in between."""
    shown.begin(state)
    try:
        _one(batch, state, shown)
    except KeyboardInterrupt:
        folder = batch.folder / state.folder
        record.interrupt(folder, "stopped by Ctrl-C or a signal")
        batches.complete(folder, run=state.about())
        batch.note(state, "interrupted", "stopped by Ctrl-C or a signal")
        shown.end(state)
        raise
    shown.end(state)


def _one(batch: Batch, state: RunState, shown: Lines) -> None:
    """One run: a fresh folder, its own kernel and devices, a state at the end whatever happens."""
    folder = batch.folder / state.folder
    resumes = _clear(folder)
    state.seconds = None
    problem = kernels.problem(state.kernel)
    if problem is not None:
        _settle(batch, state, "skipped", problem)
        return
    batch.note(state, "running")
    started = time.monotonic()
    given = batch.plan.parameters() | {
        "devices": state.devices,
        "run": str(folder),
        "seed": state.seed,
        "precision": state.precision,
        "resume": resumes,
    }
    gpus = device_helpers.visible_uuids()[: state.devices]
    failure: Exception | None = None
    with neighbours.Watch(gpus, batch.folder, shown.warn) as watch:
        shown.show(f"starting kernel {state.kernel}")
        try:
            kernels.execute(
                paths.NOTEBOOKS / f"{state.notebook}.ipynb",
                folder / "notebook.ipynb",
                given,
                kernel=state.kernel,
                started=lambda process: batch.note_process(state, process),
                reached=lambda section, cell, cells: shown.show(
                    section or "introduction", f"cell {cell} of {cells}"
                ),
                settled=lambda: record_state(folder) != "running",
                environment=_environment(batch, gpus),
            )
        except Exception as error:
            failure = error
        finally:
            state.seconds = time.monotonic() - started
    said = {"run": state.about(), **watch.as_record()}
    if failure is not None:
        cannot = getattr(failure, "ename", "") == UnsupportedError.__name__
        outcome = "skipped" if cannot else "failed"
        _settle(batch, state, outcome, reason_of(failure), said)
    elif record_state(folder) != "finished":
        reason = "the notebook ended without finishing its record"
        _settle(batch, state, "failed", reason, said)
    else:
        batches.complete(folder, **said)
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


def _environment(batch: Batch, gpus: list[str]) -> dict[str, str]:
    """The mark of the batch, and only the run's own GPUs, whatever else is in the machine.

    By UUID, because CUDA and NVML number GPUs differently.
    """
    marked = {kernels.MARK: str(batch.folder)}
    return marked | ({"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {})


def _settle(
    batch: Batch,
    state: RunState,
    outcome: str,
    reason: str,
    said: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write ``outcome`` into the journal and the record, making a short record if there is none."""
    folder = batch.folder / state.folder
    try:
        content = record.read(folder)
    except UserError:
        content = batch.short_record(state)
    if content["state"] not in ("failed", "skipped"):
        content |= {"state": outcome, "reason": reason}
        batches.write_record(folder, content)
    batches.complete(folder, **said)
    batch.note(state, outcome, content.get("reason") or reason)


def record_state(folder: Path) -> str | None:
    """The state in the record of a run's folder; None where there is no record."""
    try:
        return str(record.read(folder)["state"])
    except UserError:
        return None


def reason_of(error: Exception) -> str:
    """One line for the table: the notebook's own error, or what happened to its kernel."""
    kind = type(error).__name__
    if kind == "PapermillExecutionError":
        return f"{error.ename}: {error.evalue}".strip().splitlines()[0]  # type: ignore[attr-defined]
    if kind == "DeadKernelError":
        return "the kernel died (out of memory, or a crash in native code): see kernel.log"
    if kind == "CellTimeoutError":
        return f"a cell ran for more than {kernels.CELL_HOURS:g} hours"
    return (f"{kind}: {error}".strip().splitlines() or [kind])[0]


def _check(batch: Batch) -> None:
    """Everything that can be wrong with the user's input, before the first kernel starts.

    This also makes the generated images where they are missing, once and where it can be seen.
    """
    most = max(state.devices for state in batch.runs)  # the largest global batch to be filled
    for seed in dict.fromkeys(state.seed for state in batch.runs):
        setup = parameters.resolve(
            "check",
            **batch.plan.parameters(),
            devices=most,
            run=batch.folder / "check",
            seed=seed,
        )
        setup.recipe.steps(len(parameters.load_data(setup).train))
    parameters.check_images(setup.data)


def _compare(batch: Batch) -> str | None:
    """Execute Compare.ipynb into the batch's folder; why it failed, or None."""
    source = paths.NOTEBOOKS / f"{COMPARE}.ipynb"
    kernel = "lab" if kernels.problem("lab") is None else "python3"
    print(f"Comparing ({source.name})", flush=True)
    try:
        with progress.Line() as line:
            kernels.execute(
                source,
                batch.folder / source.name,
                {"batch": str(batch.folder)},
                kernel=kernel,
                reached=lambda section, cell, cells: line.show("reading records, drawing"),
                environment={kernels.MARK: str(batch.folder)},
            )
    except Exception as error:
        return f"{source.name} failed: {reason_of(error)}"
    return None


def _report(batch: Batch) -> str | None:
    """Write report.html and what goes with it into the batch's folder; why not, or None."""
    # Imported here because it needs Jinja and the charts, which running a notebook does not.
    from helpers import report

    print("Writing the report", flush=True)
    try:
        report.write(batch.folder)
    except Exception as error:
        return f"the report failed: {reason_of(error)}"
    return None


@contextmanager
def terminated_is_interrupted() -> Iterator[None]:
    """SIGTERM and a closed terminal end a batch as Ctrl-C does: in order."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
