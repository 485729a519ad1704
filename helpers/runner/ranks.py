"""Run a notebook in one process or in several (ranks), on one machine or several.

Each runs the whole notebook (``python -m helpers.launch``). ``mpiexec`` starts the ranks
(``helpers.launch.launchers``), and ends all when one dies. This module waits for them, shows the
progress of rank 0, and finds the earliest cause of a failure in what they tell.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any

from helpers import paths
from helpers.errors import naming
from helpers.frameworks import Row, original, rank_info, replicas, row_of
from helpers.launch import failures, launchers
from helpers.launch.failures import RankError
from helpers.launch.launchers import Launcher
from helpers.record import this_notebook
from helpers.runner import environment_variables, hangs, kernel_processes, notebook_links, shutdown

LOG, LOG_OF_ONE = "ranks.log", "kernel.log"
"""The files in the run's folder with the output of the launcher and the ranks; of one process."""
CLOSING_SECONDS = 10.0
"""The time for all ranks to end once one has failed, or all have come to the notebook's end."""
POLITE_SECONDS = 5.0
"""The time for the launcher to end its ranks, before they are killed."""
LOOK_SECONDS = 0.05
_MODULE = re.compile(r"^run = helpers\.begin\(\"(\w+)\"", re.M)


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


def _row_of(notebook: str) -> Row | None:
    """The row of a notebook, or of the notebook that it was copied from."""
    code = "\n".join(this_notebook.code_cells(paths.NOTEBOOKS / f"{notebook}.ipynb")[0])
    named = _MODULE.search(code)
    return row_of(original(notebook, named[1] if named else ""))


def order(
    notebook: str, kernel: str, launcher: str, nodes: int, devices: int, kind: str
) -> Order | None:
    """The ranks of a notebook on its nodes; None if it runs in one process.

    ``launcher`` is that of ``launchers.choose``.

    Raises:
        UserError: the environment has no launcher.
    """
    row = _row_of(notebook)
    if nodes == 1 and not (row and row.ranks_only):
        return None
    chosen = launchers.choose(launcher, nodes)
    each = devices if row and row.rank_a_device else 1
    chosen.command(Path(kernel_processes.start_of(kernel)[0]), each)
    return Order(chosen, each, devices, kind, row.module if row else "")


def execute(
    source: Path,
    target: Path,
    parameters: Mapping[str, Any],
    order: Order | None = None,
    *,
    kernel: str,
    reached: Callable[[str, int, int], None] = lambda section, cell, cells: None,
    environment: Mapping[str, str] = MappingProxyType({}),
    **how: Any,
) -> None:
    """Run the notebook ``source`` in a kernel's environment: see :func:`run`.

    Rank 0's becomes ``target``; the others' are in ``rank-1`` and so on, next to it.

    Args:
        parameters: for the cell tagged ``parameters``.
        reached: called at each cell with the section's heading, the cell and how many there are.
        environment: variables in addition to the runner's and the kernel's.
    """
    import nbformat

    python, variables = kernel_processes.start_of(kernel)
    notebook = kernel_processes.with_parameters(source, target, parameters, kernel)
    sections = notebook_links.section_of_each_cell(notebook.cells)
    run(
        nbformat.writes(notebook),
        target,
        order,
        python=Path(python),
        cwd=source.parent,
        reached=lambda cell: reached(sections[cell], cell + 1, len(sections)),
        environment=variables | {this_notebook.VARIABLE: str(source)} | dict(environment),
        **how,
    )


def run(
    notebook: str,
    target: Path,
    order: Order | None,
    *,
    python: Path,
    cwd: Path,
    environment: Mapping[str, str],
    reached: Callable[[int], None] = lambda cell: None,
    heard: Callable[[str, bool], None] = lambda line, moving: None,
    settled: Callable[[], bool] = lambda: True,
    stall_minutes: float = 0.0,
) -> None:
    """Run a notebook in all ranks, or in one process, until each has come to its end.

    Whatever happens, no process that was started here or by it is left afterwards, on any host, and
    nothing of it in the temporary folder. Ctrl-C reaches one process as KeyboardInterrupt first, so
    that it can write down what it has.

    Args:
        notebook: the text of its file, with its parameters.
        reached: called with the number of each cell that rank 0 comes to.
        heard: called with each line that the run says of itself, and whether it is soon replaced.
        settled: once it was interrupted, whether one process has written down what it has.
        stall_minutes: without a step, output or section, after which it is ended; 0: never.

    Raises:
        RankError: one failed or died; the message is the earliest cause.
        hangs.Stalled: they made no progress for ``stall_minutes``.
        OSError: a file of the run cannot be written.
    """
    about = json.dumps(asdict(order.launcher) | asdict(order) if order else {})
    command = [str(python), "-m", "helpers.launch", str(target), about]
    if order:
        command = order.launcher.command(python, order.ranks_a_node) + command
    if shutil.which("setpriv"):  # it, or the launcher and so its ranks, end with this process
        command = ["setpriv", "--pdeathsig", "TERM", *command]
    log = target.with_name(LOG if order else LOG_OF_ONE)
    target.parent.mkdir(parents=True, exist_ok=True)
    with naming(target):
        target.write_text(notebook, encoding="utf-8")
    told: list[dict[str, Any]] = []
    with shutdown.held(), replicas.temporary_folder("rosetta-") as own:
        variables = environment_variables.for_a_kernel(os.environ) | dict(environment)
        variables |= {"TMPDIR": own, rank_info.VARIABLE: str(target.parent)}
        process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_for(order.launcher, variables) if order else variables,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is the runner's alone
        )
        kernel_processes.note_leader(target.parent, process.pid)
        listening = Thread(target=_listen, args=(process, log, told), daemon=True)
        watch = hangs.Watch(target.parent, stall_minutes, heard)
        try:
            listening.start()
            _wait(process, told, order, reached, watch)
        except BaseException:
            if not order:
                kernel_processes.interrupt(process.pid, settled)
            raise
        finally:
            if order and process.poll() is None:  # so that the launcher ends other hosts' ranks
                os.killpg(process.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLITE_SECONDS)
            kernel_processes.end(process.pid)
            process.wait()
            listening.join(POLITE_SECONDS)
            watch.close()
            (target.parent / kernel_processes.LEADER).unlink(missing_ok=True)
    if sum("done" in said for said in told) < (order.ranks if order else 1):
        died = f"mpiexec ended with exit code {process.returncode}: see {log}"
        if not order:
            died = f"the process: {failures.how(process.returncode)}: see {log.name}"
            for number in (said["unwritten"] for said in told if "unwritten" in said):
                raise OSError(number, os.strerror(number), str(target))
        raise failures.earliest(told) or RankError(died)


def _listen(process: subprocess.Popen[str], log: Path, told: list[dict[str, Any]]) -> None:
    """Keep what the ranks tell, and write what they and the launcher print into the log."""
    assert process.stdout is not None
    with process.stdout, log.open("wb", buffering=0) as file:
        for line in process.stdout:
            if said := failures.heard(line):
                told.append(said)
            elif line != "\n":
                with suppress(OSError):  # the disk is full: what the ranks tell counts
                    file.write(line.encode())


def _wait(
    process: subprocess.Popen[str],
    told: list[dict[str, Any]],
    order: Order | None,
    reached: Callable[[int], None],
    watch: hangs.Watch,
) -> None:
    """Wait until all have ended; where one has failed, or all are done, not for long."""
    ended, seen = None, 0
    while process.poll() is None:
        shutdown.check()
        watch.look()
        for said in told[seen:]:
            seen += 1
            if said["rank"] == 0 and "cell" in said:
                watch.hear()
                reached(said["cell"])
        failed = any("error" in said for said in told)
        if failed and not order:
            return  # it waits to be ended together with what it has started
        if failed or sum("done" in said for said in told) == (order.ranks if order else 1):
            ended = ended or time.monotonic()
            if time.monotonic() - ended > CLOSING_SECONDS:
                return
        time.sleep(LOOK_SECONDS)


def _for(launcher: Launcher, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the launcher's process."""
    found = dict(environment)
    if launcher.virtual:  # these variables lead to other hosts
        found = {name: value for name, value in found.items() if not name.startswith("HYDRA_")}
    elif "-" in found.get("CUDA_VISIBLE_DEVICES", ""):
        del found["CUDA_VISIBLE_DEVICES"]  # names of this machine's GPUs
    found.pop(rank_info.SLURM_NODE, None)  # mpiexec would hand it on to ranks on other nodes
    if launcher.interface:
        found["FI_TCP_IFACE"] = launcher.interface
    # Hydra's srun, which starts a process for each node, would bind all ranks of it to one core.
    return found | {"SLURM_CPU_BIND": "none"}
