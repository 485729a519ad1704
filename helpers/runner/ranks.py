"""Run a notebook in several processes, its ranks, on one machine or on several.

``mpiexec`` starts the ranks (``helpers.launch.launchers``), and ends all when one dies. Each runs
the whole notebook (``python -m helpers.launch``). This module waits for them, shows the progress of
rank 0, and finds the earliest cause of a failure in what the ranks tell.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from helpers import paths
from helpers.frameworks import Row, original, rank_info, row_of, temporary_files
from helpers.launch import failures, launchers
from helpers.launch.failures import RankError
from helpers.launch.launchers import Launcher
from helpers.record import this_notebook
from helpers.runner import environment_variables, hangs, kernel_processes, notebook_links, shutdown

LOG = "ranks.log"
"""The file in the run's folder with the output of the launcher and the ranks."""
CLOSING_SECONDS = 10.0
"""The time for all ranks to end once one has failed, or all have come to the notebook's end."""
POLITE_SECONDS = 5.0
"""The time for the launcher to end its ranks, before it is killed."""
LOOK_SECONDS = 0.05
LAST_LINES = 1000
"""The last printed lines, in which the launcher names the process that died."""
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
    """Whether a notebook runs in ranks, and not in one kernel."""
    row = _row_of(notebook)
    return nodes > 1 or bool(row and row.ranks_only)


def _row_of(notebook: str) -> Row | None:
    """The row of a notebook, or of the notebook that it was copied from."""
    code = "\n".join(this_notebook.code_cells(paths.NOTEBOOKS / f"{notebook}.ipynb")[0])
    named = _MODULE.search(code)
    return row_of(original(notebook, named[1] if named else ""))


def order(notebook: str, kernel: str, launcher: str, nodes: int, devices: int, kind: str) -> Order:
    """The ranks of a notebook on its nodes; ``launcher`` is that of ``launchers.choose``.

    Raises:
        UserError: the environment has no launcher.
    """
    row = _row_of(notebook)
    chosen = launchers.choose(launcher, nodes)
    each = devices if row and row.rank_a_device else 1
    chosen.command(Path(kernel_processes.start_of(kernel)[0]), each)
    return Order(chosen, each, devices, kind, row.module if row else "")


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
    """Run the notebook ``source`` in all ranks, as ``kernel_processes.execute`` does in a kernel.

    Rank 0's becomes ``target``; the others' are in ``rank-1`` and so on, next to it.
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
) -> None:
    """Run a notebook in all ranks, until each has come to its end.

    No rank and no process of a rank is left afterwards, on any host.

    Args:
        notebook: the text of its file, with its parameters.
        reached: called with the number of each cell that rank 0 comes to.

    Raises:
        RankError: one failed or died; the message is the earliest cause.
        hangs.Stalled: they made no progress for ``stall_minutes``.
        OSError: a file of the run cannot be written.
    """
    command = order.launcher.command(python, order.ranks_a_node)
    about = json.dumps(asdict(order.launcher) | asdict(order))
    command += [str(python), "-m", "helpers.launch", str(target), about]
    if shutil.which("setpriv"):  # the launcher, and so its ranks, end with this process
        command = ["setpriv", "--pdeathsig", "TERM", *command]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(notebook, encoding="utf-8")
    told: list[dict[str, Any]] = []
    printed: deque[str] = deque(maxlen=LAST_LINES)
    with temporary_files.own("rosetta-") as own:
        variables = environment_variables.for_a_kernel(os.environ) | dict(environment)
        variables |= {"TMPDIR": own, rank_info.VARIABLE: str(target.parent)}
        with shutdown.held():
            process = subprocess.Popen(
                command,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=_for(order.launcher, variables),
                text=True,
                errors="replace",
                start_new_session=True,  # Ctrl-C is the runner's alone
            )
        listening = Thread(target=_listen, args=(process, target.parent / LOG, told, printed))
        watch = hangs.Watch(target.parent, stall_minutes, heard)
        try:
            listening.start()
            _wait(process, told, order.ranks, reached, watch)
        finally:
            with shutdown.held():
                _end(process)
                listening.join(POLITE_SECONDS)
            watch.close()
    if sum("done" in said for said in told) < order.ranks:
        raise failures.earliest(told, "".join(printed)) or RankError(
            f"mpiexec ended with exit code {process.returncode}: see {target.parent / LOG}"
        )


def _listen(
    process: subprocess.Popen[str], log: Path, told: list[dict[str, Any]], printed: deque[str]
) -> None:
    """Keep what the ranks tell, and write what they and the launcher print into the log."""
    assert process.stdout is not None
    with log.open("ab", buffering=0) as file:
        for line in process.stdout:
            if said := failures.heard(line):
                told.append(said)
            elif line != "\n":
                printed.append(line)
                with suppress(OSError):  # the disk is full: what the ranks tell counts
                    file.write(line.encode())


def _wait(
    process: subprocess.Popen[str],
    told: list[dict[str, Any]],
    ranks: int,
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
        if failed or sum("done" in said for said in told) == ranks:
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


def _end(process: subprocess.Popen[str]) -> None:
    """End the launcher and its ranks; harmless when they have ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(POLITE_SECONDS)
