"""The command's work: run the framework notebooks one after the other, then compare them.

A batch is a folder ``runs/<batch>/`` with one folder a run (``PyTorch_MultiGPU-2x/``), a journal
``batch.json`` that says at every moment which run is in which state, and at the end
``Compare.ipynb`` and ``report.html``. ``runs/latest`` points at the last batch. The measure of
whether a run is finished is its own record, not the journal.

Resuming: finished runs of an unchanged notebook are kept, all others are run again. The last
batch is resumed by itself when it was cut short (Ctrl-C, a crash, a reboot) and the same plan is
asked for; a batch that came to its end, with failures or without, is followed by a new one
unless ``--resume`` names it.
"""

import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers import batches, kernels, parameters, paths, progress, record
from helpers.batches import Batch
from helpers.errors import UserError
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
        _announce(batches.choose(plan, name=name, resume=resume))
        print("\nNothing was started (--dry-run).")
        return 0
    with batches.only_one(), terminated_is_interrupted():
        batch = batches.choose(plan, name=name, resume=resume)
        _check(batch)
        _announce(batch)
        batch.open()
        for number, state in enumerate(batch.runs, start=1):
            title = f"[{number}/{len(batch.runs)}] {state.title}"
            if batch.is_finished(state):
                print(f"{title}: finished before, kept", flush=True)
                continue
            print(title, flush=True)
            try:
                _one(batch, state)
            except KeyboardInterrupt:
                record.interrupt(batch.folder / state.folder, "stopped by Ctrl-C or a signal")
                batch.note(state, "interrupted", "stopped by Ctrl-C or a signal")
                print(f"      interrupted; kept: {batch.folder}", flush=True)
                raise
            print(f"      {_outcome(state)}", flush=True)
        problems = [problem for problem in (_compare(batch), _report(batch)) if problem]
        batch.close()
        print(f"\n{_final_table(batch)}\n")
        return _where_to_look(batch, problems)


def _one(batch: Batch, state: RunState) -> None:
    """One run: a fresh folder, its own kernel, a state at the end whatever happens."""
    folder = batch.folder / state.folder
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    state.seconds = None
    problem = kernels.problem(state.kernel)
    if problem is not None:
        _settle(batch, state, "skipped", problem)
        return
    batch.note(state, "running")
    started = time.monotonic()
    source = paths.NOTEBOOKS / f"{state.notebook}.ipynb"
    given = batch.plan.parameters() | {"devices": state.devices, "run": str(folder)}
    failure: Exception | None = None
    with progress.Line() as line:
        line.show(f"starting kernel {state.kernel}")
        try:
            kernels.execute(
                source,
                folder / "notebook.ipynb",
                given,
                kernel=state.kernel,
                started=lambda process: batch.note_process(state, process),
                reached=lambda section, cell, cells: line.show(
                    section or "introduction", f"cell {cell} of {cells}"
                ),
                settled=lambda: record_state(folder) != "running",
            )
        except Exception as error:
            failure = error
        finally:
            state.seconds = time.monotonic() - started
    if failure is not None:
        _settle(batch, state, "failed", reason_of(failure))
    elif record_state(folder) != "finished":
        _settle(batch, state, "failed", "the notebook ended without finishing its record")
    else:
        batch.note(state, "finished")


def _settle(batch: Batch, state: RunState, outcome: str, reason: str) -> None:
    """Write ``outcome`` into the journal and the record, making a short record if there is none."""
    folder = batch.folder / state.folder
    try:
        content = record.read(folder)
    except UserError:
        content = batch.short_record(state)
    if content["state"] not in ("failed", "skipped"):
        content |= {"state": outcome, "reason": reason}
        batches.write_record(folder, content)
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
    for devices in sorted({state.devices for state in batch.runs}):
        setup = parameters.resolve(
            "check", **batch.plan.parameters(), devices=devices, run=batch.folder / "check"
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


def _announce(batch: Batch) -> None:
    count = len(batch.runs)
    kept = sum(batch.is_finished(state) for state in batch.runs)
    again = f", {kept} of them finished before" if kept else ""
    verb = "Resuming batch" if batch.resumed else "Batch"
    print(f"{verb} {batch.name}: {count} run{'s' if count != 1 else ''}{again}")
    for state in batch.runs:
        problem = kernels.problem(state.kernel)
        note = f"will be skipped: {problem}" if problem else f"kernel {state.kernel}"
        print(f"  {state.title}, {note}")
    print(flush=True)


def _outcome(state: RunState) -> str:
    after = "" if state.seconds is None else f" after {progress.clock(state.seconds)}"
    return f"{state.state}{after}" + (f": {state.reason}" if state.reason else "")


def _final_table(batch: Batch) -> str:
    rows = []
    for state in batch.runs:
        auc = speed = "-"
        if state.state == "finished":
            content = record.read(batch.folder / state.folder)
            mean = content["test"]["mean_auc"]
            auc = "-" if mean is None else f"{mean:.3f}"
            speed = f"{content['training']['images_per_second']:.1f}"
        seconds = "-" if state.seconds is None else progress.clock(state.seconds)
        rows.append([state.notebook, str(state.devices), state.state, seconds, auc, speed])
    header = ["Notebook", "Devices", "State", "Time", "Test AUC", "Images/s"]
    lines = [progress.table(header, rows)]
    for state in batch.runs:
        if state.reason:
            lines.append(f"{state.notebook}, {state.devices}x, {state.state}: {state.reason}")
    return "\n".join(lines)


def _where_to_look(batch: Batch, problems: list[str]) -> int:
    bad = [state for state in batch.runs if state.state != "finished"]
    for name, hint in (
        ("report.html", "in any browser; one file to send round"),
        (f"{COMPARE}.ipynb", "'make lab' opens JupyterLab"),
    ):
        if (batch.folder / name).exists():
            print(f"Look at  {batch.folder / name}  ({hint})")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    print(f"Each run's notebook, record and trace: {batch.folder}")
    if bad:
        print(
            f"error: {len(bad)} of {len(batch.runs)} runs did not finish; "
            f"put the cause right, then: compare --resume {batch.name}",
            file=sys.stderr,
        )
    return 1 if bad or problems else 0


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
