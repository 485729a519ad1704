"""Find a kernel's Python, and end a notebook's processes with every process that they started."""

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import Any

import psutil

from data_prep.errors import printable
from helpers.errors import in_a_line
from helpers.launch.failures import RankError
from helpers.record import processes
from helpers.runner import hangs, notebook_links

LEADER = "processes.json"
"""A file in a run's folder while the run goes on: the leader of its process group."""
GRACE_SECONDS = 10.0
"""The time for an interrupted kernel to write its record and close its trace."""
KILLED_SECONDS = 5.0
"""The time to wait for killed processes."""


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


def reason_of(error: Exception) -> str:
    """One line for the table: the notebook's own error, or what happened to its processes."""
    told = isinstance(error, hangs.Stalled | RankError)
    return printable(str(error)) if told else in_a_line(error)


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


def interrupt(process: int, settled: Callable[[], bool]) -> None:
    """Ctrl-C in a notebook's process, as Jupyter's stop button does it; waits until ``settled``."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGINT)
    end = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < end and processes.lives(process) and not settled():
        time.sleep(0.05)


def start_of(kernel: str) -> tuple[str, dict[str, str]]:
    """The Python of a Jupyter kernel, and the variables that Jupyter gives it.

    Its ``PATH`` ends in ``${PATH}``; ``python`` alone is this process's, as Jupyter has it.
    """
    from jupyter_client.kernelspec import KernelSpecManager

    spec = KernelSpecManager().get_kernel_spec(kernel)
    environ = {name: Template(text).safe_substitute(os.environ) for name, text in spec.env.items()}
    return sys.executable if re.fullmatch(r"python[\d.]*", spec.argv[0]) else spec.argv[0], environ
