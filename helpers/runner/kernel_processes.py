"""Run a notebook in a kernel, and end the kernel with every process that it started."""

import asyncio
import atexit
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from string import Template
from threading import Thread
from typing import Any

import psutil

from data_prep.errors import printable
from helpers import paths
from helpers.errors import in_a_line, naming
from helpers.frameworks import temporary_files
from helpers.record import processes, this_notebook
from helpers.runner import environment_variables, hangs, notebook_links, shutdown

LEADER = "processes.json"
"""A file in a run's folder while the run goes on: the leader of its process group."""
GRACE_SECONDS = 10.0
"""The time for an interrupted kernel to write its record and close its trace."""
LEAVING_SECONDS = 1.0
"""The time for a kernel to end by itself, half of it after a SIGTERM. ipykernel waits until its
children end, and multiprocessing's resource tracker ends only after the kernel does."""
KILLED_SECONDS = 5.0
"""The time to wait for killed processes."""
LOOK_SECONDS = 0.1


def execute(
    source: Path,
    target: Path,
    parameters: Mapping[str, Any],
    *,
    kernel: str,
    reached: Callable[[str, int, int], None] = lambda section, cell, cells: None,
    heard: Callable[[str, bool], None] = lambda line, moving: None,
    settled: Callable[[], bool] = lambda: True,
    stall_minutes: float = 0.0,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run the notebook ``source`` in ``kernel``, writing ``target`` as it goes.

    Whatever happens, the kernel and every process it started are gone afterwards, with all that
    they left in the temporary folder (``helpers.frameworks.temporary_files``). Ctrl-C reaches the
    kernel as KeyboardInterrupt first, so that it can write down what it has.

    Args:
        parameters: for the cell tagged ``parameters``.
        reached: called at each cell with the section's heading, the cell and how many there are.
        heard: called with each line that the run says of itself, and whether it is soon replaced.
        settled: once it was interrupted, whether the kernel has written down what it has.
        stall_minutes: without a step, output or section, after which it is ended; 0: never.
        environment: variables in addition to the runner's that reach the kernel.

    Raises:
        Exception: a cell failed, there was no progress, or the kernel could not be started or died.
        OSError: what the runner itself writes, ``target`` first of all, cannot be written.
    """
    from nbclient import NotebookClient  # takes a moment to import

    notebook = with_parameters(source, target, parameters, kernel)
    sections = notebook_links.section_of_each_cell(notebook.cells)
    at: list[int] = []  # the cells that were begun
    silent = logging.getLogger(f"{__name__}.nbclient")
    silent.setLevel(logging.CRITICAL + 1)  # the runner says how a run ended
    client = NotebookClient(
        notebook,
        kernel_name=kernel,
        startup_timeout=300,  # importing a framework from a cold disk
        timeout=None,
        coalesce_streams=True,
        log=silent,
        on_cell_start=lambda cell, cell_index: at.append(cell_index),
        on_cell_executed=lambda cell, **_: save(notebook, target),
    )
    manager = client.create_kernel_manager()
    manager.shutdown_wait_time = LEAVING_SECONDS
    failures: list[BaseException] = []

    def work(**how: Any) -> None:
        try:
            asyncio.run(client.async_execute(**how))  # client.execute leaves its loop open
        except BaseException as error:
            failures.append(error)

    with (
        shutdown.held(),
        temporary_files.own("rosetta-") as own,
        target.with_name("kernel.log").open("wb") as log,  # native code's last words
    ):
        manager.connection_file = f"{own}/connection.json"
        variables = environment_variables.for_a_kernel(os.environ)
        variables |= {"TMPDIR": own, this_notebook.VARIABLE: str(source), **(environment or {})}
        how = {"cwd": str(source.parent), "env": variables, "stdout": log, "stderr": log}
        # A thread of its own, which no signal interrupts.
        thread = Thread(target=work, kwargs=how, daemon=True)
        watch = hangs.Watch(target.parent, stall_minutes, heard, lambda: _letters(notebook))
        process, shown = 0, 0
        try:
            thread.start()
            while thread.is_alive():
                thread.join(LOOK_SECONDS)
                if not process and (process := getattr(manager.provisioner, "pid", None) or 0):
                    note_leader(target.parent, process)
                shutdown.check()
                if len(at) > shown:
                    shown = len(at)
                    watch.hear()
                    reached(sections[at[-1]], at[-1] + 1, len(sections))
                watch.look()
        except BaseException:
            _interrupt(process, settled)
            raise
        finally:
            end(process)
            thread.join(GRACE_SECONDS)
            atexit.unregister(client._cleanup_kernel)  # which nbclient leaves if no kernel came up
            watch.close()
            (target.parent / LEADER).unlink(missing_ok=True)
            with suppress(OSError):  # a full disk, which has ended the run
                save(notebook, target)
    if failures:
        raise failures[0]


def with_parameters(source: Path, target: Path, parameters: Mapping[str, Any], kernel: str) -> Any:
    """The notebook ``source`` with its parameters in a separate cell, as papermill writes them.

    Its links work from ``target``.
    """
    import nbformat

    notebook = nbformat.read(source, as_version=4)
    for place, cell in enumerate(notebook.cells):
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if "parameters" in cell.metadata.get("tags", []):
            text = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
            given = nbformat.v4.new_code_cell(f"# Parameters\n{text}")
            given.metadata["tags"] = ["injected-parameters"]
            notebook.cells.insert(place + 1, given)
            break
    notebook.metadata["kernelspec"]["name"] = kernel
    notebook_links.rewrite(notebook.cells, [source.parent], target.parent)
    return notebook


def save(notebook: Any, target: Path) -> None:
    """Write the notebook in its current state."""
    import nbformat

    with naming(target):
        paths.write_atomically(target, nbformat.writes(notebook))


def reason_of(error: Exception) -> str:
    """One line for the table: the notebook's own error, or what happened to its kernel."""
    kind = type(error).__name__
    if kind == "DeadKernelError":
        return "the kernel died (out of memory, or a crash in native code): see kernel.log"
    if kind == "CellExecutionError":
        return in_a_line(error.evalue, error.ename)  # type: ignore[attr-defined]
    return printable(str(error)) if isinstance(error, hangs.Stalled) else in_a_line(error)


def note_leader(folder: Path, process: int) -> None:
    """Write down the process group that works in ``folder``, for :func:`end_left`."""
    began = psutil.Process(process).create_time() if psutil.pid_exists(process) else 0.0
    about = {"host": socket.gethostname(), "process": process, "began": began}
    (folder / LEADER).write_text(json.dumps(about), encoding="utf-8")


def end_left(folder: Path) -> None:
    """End the processes that a killed runner left working in ``folder``, if they are of this host.

    The number of a process group is not reused while one of its members lives.
    """
    try:
        said = json.loads((folder / LEADER).read_text(encoding="utf-8"))
        process, here = int(said["process"]), said["host"] == socket.gethostname()
        try:
            ours = psutil.Process(process).create_time() == said["began"]
        except psutil.NoSuchProcess:
            ours = True
    except (OSError, ValueError, KeyError, TypeError):
        return
    if here and ours:
        end(process)


def end(process: int) -> None:
    """Kill the process group that ``process`` leads, and what it started in other groups."""
    if not process:
        return
    family: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        leader = psutil.Process(process)
        family = [*leader.children(recursive=True), leader]
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    for member in family:
        with suppress(psutil.Error):
            member.kill()
    psutil.wait_procs(family, timeout=KILLED_SECONDS)


def _interrupt(process: int, settled: Callable[[], bool]) -> None:
    """Ctrl-C in the kernel, as Jupyter's stop button does it; waits until ``settled``."""
    if not process:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGINT)
    end = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < end and processes.lives(process) and not settled():
        time.sleep(0.05)


def _letters(notebook: Any) -> int:
    """How much the cells have printed."""
    outputs = [each for cell in notebook.cells for each in list(cell.get("outputs", []))]
    return sum(1 + len(each.get("text", "")) for each in outputs)


def start_of(kernel: str) -> tuple[str, dict[str, str]]:
    """The Python of a Jupyter kernel, and the variables that Jupyter gives it.

    Its ``PATH`` ends in ``${PATH}``.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    spec = KernelSpecManager().get_kernel_spec(kernel)
    environ = {name: Template(text).safe_substitute(os.environ) for name, text in spec.env.items()}
    return spec.argv[0], environ
