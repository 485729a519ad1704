"""Run a notebook in several processes, its ranks, on one machine or on several.

A cluster's launcher starts the ranks (``helpers.launch.launchers``), and each rank runs the whole
notebook (``helpers.launch.rank``). This module waits for them (``helpers.runner.rank_watch``) and
shows the progress of rank 0.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import paths
from helpers.frameworks import Row, original, rank_info, row_of, temporary_files
from helpers.launch import environment_variables, launchers, run_files, this_notebook
from helpers.launch.failures import RankError
from helpers.launch.launchers import Launcher
from helpers.launch.run_files import ALIVE, END, NOTEBOOK
from helpers.runner import hangs, kernel_processes, notebook_links, shutdown
from helpers.runner.rank_watch import LOG, Watch

JOIN_SECONDS = 120.0
"""The time in which all ranks have to join."""
POLITE_SECONDS = 5.0
"""The time for the ranks' parent processes to end them, before the launcher is killed."""
LOOK_SECONDS = 0.05
_PORT_TAKEN = re.compile("EADDRINUSE|address already in use|failed to (bind|add port)", re.I)
_MODULE = re.compile(r"^from helpers\.frameworks import (\w+) as framework$", re.M)


@dataclass(frozen=True)
class Order:
    """The requested ranks of a run."""

    launcher: Launcher
    ranks_a_node: int
    devices: int
    """The devices of each node."""
    kind: str
    framework: str
    """Its module in ``helpers.frameworks``."""

    @property
    def ranks(self) -> int:
        return self.launcher.nodes * self.ranks_a_node


def are_needed(notebook: str, kernel: str, nodes: int) -> bool:
    """Whether a notebook is run by ranks, and not in one kernel."""
    row = _row_of(notebook, kernel)
    return nodes > 1 or bool(row and row.ranks_only)


def _row_of(notebook: str, kernel: str) -> Row | None:
    """The row of a notebook, or of the notebook that it was copied from."""
    code = "\n".join(this_notebook.code_cells(paths.NOTEBOOKS / f"{notebook}.ipynb")[0])
    named = _MODULE.search(code)
    return row_of(original(notebook, named[1] if named else ""), kernel)


def order(notebook: str, kernel: str, launcher: str, nodes: int, devices: int, kind: str) -> Order:
    """Describe the ranks of a notebook on ``nodes`` nodes with ``devices`` devices each.

    ``launcher`` is as ``launchers.choose`` takes it.
    """
    row = _row_of(notebook, kernel)
    chosen = launchers.choose(launcher, nodes, mpi=bool(row and row.ranks_only))
    each = devices if row and row.rank_a_device else 1
    return Order(chosen, each, devices, kind, row.module if row else "")


def check(order: Order, kernel: str) -> None:
    """Check that an environment has the launcher of the ranks."""
    order.launcher.command([kernel_processes.start_of(kernel)[0]], order.ranks_a_node)


def execute(
    source: Path,
    target: Path,
    parameters: Mapping[str, Any],
    order: Order,
    *,
    kernel: str,
    reached: Callable[[str, int, int], None] = lambda section, cell, cells: None,
    heard: Callable[[str, bool], None] = lambda line, moving: None,
    stall_minutes: float = 0.0,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run the notebook ``source`` in all ranks; rank 0's becomes ``target``.

    The notebooks of the other ranks are kept in ``rank-1`` and so on, next to ``target``. The
    arguments are as of ``kernel_processes.execute``, the errors as of :func:`run`.
    """
    python, variables = kernel_processes.start_of(kernel)
    import nbformat
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    notebook = parameterize_notebook(
        load_notebook_node(str(source)), dict(parameters), kernel_name=kernel, language="python"
    )
    notebook_links.rewrite(notebook.cells, [source.parent], target.parent)
    sections = notebook_links.section_of_each_cell(notebook.cells)
    run(
        nbformat.writes(notebook),
        target,
        order,
        python=Path(python),
        cwd=source.parent,
        reached=lambda cell: reached(sections[cell], cell + 1, len(sections)),
        heard=heard,
        stall_minutes=stall_minutes,
        environment=variables | {this_notebook.VARIABLE: str(source)} | dict(environment or {}),
    )


def run(
    notebook: str,
    target: Path,
    order: Order,
    *,
    python: Path,
    cwd: Path,
    environment: Mapping[str, str],
    reached: Callable[[int], None] = lambda cell: None,
    heard: Callable[[str, bool], None] = lambda line, moving: None,
    stall_minutes: float = 0.0,
    join_seconds: float = JOIN_SECONDS,
) -> None:
    """Run a notebook in all ranks, until each has come to its end.

    No rank and no process of a rank is left afterwards, on any host.

    Args:
        notebook: the text of its file, with its parameters.
        target: where rank 0's becomes another file, with what it shows.
        environment: variables in addition to those that reach a kernel.
        reached: called with the number of each cell that rank 0 comes to.
        stall_minutes: without any progress, after which they are ended; 0: never.
        join_seconds: in which all have to be in.

    Raises:
        RankError: one failed, hung or died; the message is the earliest cause.
        OSError: a file of the run cannot be written.
    """
    command = order.launcher.command([str(python)], order.ranks_a_node)
    folder = run_files.make_folder(target.parent)
    try:
        (folder / NOTEBOOK).write_text(notebook, encoding="utf-8")
        _say_what(folder, order, python)
        with temporary_files.own("rosetta-") as own, (target.parent / LOG).open("ab") as log:
            variables = environment_variables.for_a_kernel(os.environ) | dict(environment)
            variables |= {"TMPDIR": own, rank_info.VARIABLE: str(folder)}
            with shutdown.held():
                process = subprocess.Popen(
                    [*command, "-m", "helpers.launch.rank", str(folder)],
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=_for(order.launcher, variables),
                    start_new_session=True,  # Ctrl-C is the runner's alone
                )
            about = folder, order.launcher.name, order.ranks
            watch = Watch(*about, process, stall_minutes, join_seconds)
            hearing = hangs.Watch(target.parent, 0, lambda: None, heard)
            try:
                with watch.alive(), hearing:
                    last = None
                    while watch.may_continue():
                        if (cell := run_files.read(folder / "cell-0")) != last:
                            last = cell
                            hearing.hear()
                            reached(cell)
                        time.sleep(LOOK_SECONDS)
            finally:
                with shutdown.held():
                    _end(folder, process)
    finally:
        run_files.remove(folder)


def lost_their_port(failure: Exception) -> bool:
    """Whether ranks failed because a port was taken after it was found free, before its use."""
    return isinstance(failure, RankError) and bool(_PORT_TAKEN.search(str(failure)))


def _say_what(folder: Path, order: Order, python: Path) -> None:
    launcher = order.launcher
    about = {
        "rank in": launchers.RANK_IN[launcher.name],
        "launcher": {"launcher": launcher.name, "launcher_version": launcher.version(python)},
        "ranks": order.ranks,
        "nodes": launcher.nodes,
        "virtual": launcher.virtual,
        "interface": launcher.interface,
        "devices": order.devices,
        "kind": order.kind,
        "framework": order.framework,
    }
    run_files.write(folder / "order", about)
    run_files.write(folder / ALIVE, 0)


def _for(launcher: Launcher, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the launcher's process."""
    # Variables with PET_ are torchrun's options, which could contradict the command's.
    found = {name: value for name, value in environment.items() if not name.startswith("PET_")}
    if launcher.virtual:  # these variables lead to other hosts
        found = {name: value for name, value in found.items() if not name.startswith("HYDRA_")}
    elif "-" in found.get("CUDA_VISIBLE_DEVICES", ""):
        del found["CUDA_VISIBLE_DEVICES"]  # names of this machine's GPUs
    if launcher.name == "mpiexec":  # hands this node's name on to ranks on others
        found.pop(rank_info.SLURM_NODE, None)
    return found


def _end(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """End the ranks, their launcher and all that they started; harmless when they have ended."""
    with suppress(OSError):
        (folder / END).touch(mode=0o600)
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(POLITE_SECONDS)
            return
