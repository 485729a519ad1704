"""Run a notebook in several processes, its ranks, on one machine or on several.

A cluster's launcher starts the ranks (``helpers.launch.launchers``), and each rank runs the whole
notebook (``helpers.launch.rank``). This module waits for them. It shows the progress of rank 0, and
ends all ranks once one has failed, hangs or gives no sign of life.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from string import Template
from threading import Event, Thread
from typing import Any

from helpers import paths
from helpers.errors import refusal
from helpers.frameworks import Row, original, rank_info, row_of, temporary_files
from helpers.frameworks.installed import require_jupyter
from helpers.launch import failures, launchers, run_files
from helpers.launch.failures import RankError
from helpers.launch.launchers import Launcher
from helpers.launch.run_files import ALIVE, BEAT_SECONDS, END, NOTEBOOK, SILENT_SECONDS
from helpers.runner import hangs, kernel_processes, notebook_links, shutdown
from helpers.training import environment_variables, this_notebook

LOG = "ranks.log"
"""The file in the run's folder with the output of the launcher and the ranks."""
HANG_MINUTES = 10.0
"""The time in which at least one rank has to make progress."""
JOIN_SECONDS = 120.0
"""The time in which all ranks have to join."""
CLOSING_SECONDS = 10.0
"""The time for ranks to end by themselves after their notebook."""
POLITE_SECONDS = 5.0
"""The time for the ranks' parent processes to end them, before the launcher is killed."""
SETTLE_SECONDS = 0.4
"""The time for a parent process to record a death that another process noticed first."""
LOOK_SECONDS = 0.05
_MODULE = re.compile(r"^from helpers\.frameworks import (\w+) as framework$", re.M)
TROUBLED = 3
"""Consecutive signs of life that could not be written: the disk is full or not available."""


@dataclass(frozen=True)
class Order:
    """The requested ranks of a run."""

    launcher: Launcher
    ranks_a_node: int
    devices: int
    """The devices of each node."""
    kind: str
    gpus: int
    """The number of GPUs of this machine."""
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


def order(
    notebook: str, kernel: str, launcher: str, nodes: int, devices: int, kind: str, gpus: int
) -> Order:
    """Describe the ranks of a notebook.

    Args:
        notebook: the notebook's name.
        kernel: the name of its environment.
        launcher: the program that starts the ranks (``launchers.choose``).
        nodes: the number of nodes.
        devices: the number of devices of each node.
        kind: the devices' kind, ``gpu`` or ``cpu``.
        gpus: the number of GPUs of this machine.
    """
    row = _row_of(notebook, kernel)
    chosen = launchers.choose(launcher, nodes, mpi=bool(row and row.ranks_only))
    each = devices if row and row.rank_a_device else 1
    return Order(chosen, each, devices, kind, gpus, row.module if row else "")


def check(order: Order, kernel: str) -> None:
    """Check that an environment has the launcher of the ranks."""
    order.launcher.command([str(_python(kernel))], order.ranks_a_node)


def _python(kernel: str) -> Path:
    specs = require_jupyter().kernelspec.KernelSpecManager()
    return Path(specs.get_kernel_spec(kernel).argv[0])


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

    The notebooks of the other ranks are kept in ``rank-1`` and so on, next to ``target``.

    Args:
        source: the notebook.
        target: where what it shows goes.
        parameters: for the cell tagged ``parameters``.
        order: what the ranks are to be.
        kernel: whose environment they run in.
        reached, heard, stall_minutes, environment: as of ``kernel_processes.execute``.

    Raises:
        RankError, UserError, OSError: as of :func:`run`.
    """
    client = require_jupyter()
    import nbformat
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    spec = client.kernelspec.KernelSpecManager().get_kernel_spec(kernel)
    notebook = parameterize_notebook(
        load_notebook_node(str(source)), dict(parameters), kernel_name=kernel, language="python"
    )
    notebook_links.rewrite(notebook.cells, [source.parent], target.parent)
    sections = kernel_processes.section_of_each_cell(notebook.cells)
    run(
        nbformat.writes(notebook),
        target,
        order,
        python=Path(spec.argv[0]),
        cwd=source.parent,
        reached=lambda cell: reached(sections[cell], cell + 1, len(sections)),
        heard=heard,
        stall_minutes=stall_minutes,
        environment={
            # As Jupyter does: a kernel's PATH ends in ${PATH}.
            **{
                name: Template(value).safe_substitute(os.environ)
                for name, value in spec.env.items()
            },
            this_notebook.VARIABLE: str(source),
            **(environment or {}),
        },
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
        order: what the ranks are to be.
        python: of their environment.
        cwd: where they run.
        environment: variables in addition to those that reach a kernel.
        reached: called with the number of each cell that rank 0 comes to.
        heard: as of ``kernel_processes.execute``.
        stall_minutes: without any progress, after which they are ended; 0: never.
        join_seconds: in which all have to be in.

    Raises:
        RankError: one failed, hung or died; the message is the earliest cause.
        UserError: the launcher is not there.
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
            watch = _Watch(folder, order, process, stall_minutes, join_seconds)
            hearing = hangs.Watch(target.parent, 0, lambda: None, heard)
            try:
                with _alive(folder, watch.trouble), hearing:
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


def _say_what(folder: Path, order: Order, python: Path) -> None:
    started_by = order.launcher
    launcher = {"launcher": started_by.name, "launcher_version": started_by.version(python)}
    about: dict[str, Any] = {"rank in": launchers.RANK_IN[started_by.name], "launcher": launcher}
    about |= {"ranks": order.ranks, "nodes": started_by.nodes, "virtual": started_by.virtual}
    about |= {"devices": order.devices, "kind": order.kind, "gpus here": order.gpus}
    about |= {"framework": order.framework, "interface": started_by.interface}
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


class _Watch:
    """Check that all ranks make progress."""

    def __init__(
        self,
        folder: Path,
        order: Order,
        process: subprocess.Popen[bytes],
        stall_minutes: float,
        join_seconds: float,
    ) -> None:
        self._folder, self._order, self._process = folder, order, process
        self._hang, self._join = 60 * min(HANG_MINUTES, stall_minutes), join_seconds
        self._joined: dict[int, Any] = {}
        self._began = self._quiet = self._looked = self._called = time.monotonic()
        self._stood = 0.0
        """Seconds for which this process stood still: Ctrl-Z, a machine that was paused."""
        self._states: dict[int, Any] = {}
        self._pulses: dict[int, tuple[Any, float]] = {}
        self._done_since: float | None = None
        self.trouble: list[OSError] = []
        """Why no sign of life could be given."""

    def may_continue(self) -> bool:
        """Whether some rank still runs.

        Raises:
            RankError: one has failed, or hangs, or its host is gone.
        """
        now, ended = time.monotonic(), self._process.poll() is not None
        self._stood, self._called = max(self._stood, now - self._called), now
        if now - self._looked >= BEAT_SECONDS or ended:
            self._looked = now
            if len(self._done) == self._order.ranks:
                self._done_since = self._done_since or now
                return not ended and now - self._done_since < CLOSING_SECONDS
            self._check_causes(ended)
            self._check_joined(now)
            self._check_pulses(now)
            self._check_states(now)
        return True

    @property
    def _done(self) -> list[int]:
        """The ranks that have come to the notebook's end."""
        ranks = range(self._order.ranks)
        return [rank for rank in ranks if (self._folder / f"done-{rank}").exists()]

    def _check_causes(self, ended: bool) -> None:
        """Raise what ended a rank, or the launcher."""
        if failures.earliest(self._folder) is None and not ended and not self.trouble:
            return
        time.sleep(SETTLE_SECONDS)
        if (cause := failures.earliest(self._folder)) is not None:
            raise cause
        if self.trouble:
            raise RankError(f"the runner on {os.uname().nodename}: {refusal(self.trouble[0])}")
        if self._stood > SILENT_SECONDS / 2:  # of its signs of life, the last one may be older
            raise RankError(
                f"the runner on {os.uname().nodename}: it was stopped (Ctrl-Z, or a paused "
                f"machine) for {self._stood:.0f} s, so its ranks have ended themselves"
            )
        how, log = self._process.returncode, self._folder.parent / LOG
        raise RankError(
            f"{self._order.launcher.name} ended with exit code {how}: see {log}",
            failures.TERMINATED if how in (-signal.SIGTERM, 128 + signal.SIGTERM) else "",
        )

    def _check_joined(self, now: float) -> None:
        """Raise where not all have come in time."""
        missing = set(range(self._order.ranks)) - set(self._joined)
        if missing:
            self._joined = self._of_each("joined")
            missing -= set(self._joined)
        if missing and now - self._began > self._join:
            raise RankError(
                f"{len(self._joined)} of {self._order.ranks} ranks are in after {self._join:.0f} "
                f"s; missing: rank {', '.join(map(str, sorted(missing)))}; see "
                f"{self._folder.parent / LOG}"
            )

    def _check_pulses(self, now: float) -> None:
        """Raise where the process above a rank is no longer heard: its whole host is gone."""
        for rank, pulse in self._of_each("pulse").items():
            if rank not in self._pulses or self._pulses[rank][0] != pulse:
                self._pulses[rank] = (pulse, now)
            elif now - self._pulses[rank][1] > SILENT_SECONDS:
                raise RankError(
                    f"rank {rank} on {self._hosts[rank]}: no sign of life for "
                    f"{SILENT_SECONDS:.0f} s; its host is gone, or was stopped"
                )

    def _check_states(self, now: float) -> None:
        """Raise if no rank has made progress for a long time."""
        states = self._of_each("state")
        if states != self._states:
            self._states, self._quiet = states, now
        if self._hang and now - self._quiet > self._hang:
            where = failures.where(states, self._hosts, self._done)
            long = f"{self._hang / 60:.0f} min" if self._hang >= 120 else f"{self._hang:.0f} s"
            raise RankError(f"no step for {long}: {where}")

    @property
    def _hosts(self) -> list[str]:
        ranks = range(self._order.ranks)
        return [self._joined.get(rank, {}).get("host", "?") for rank in ranks]

    def _of_each(self, kind: str) -> dict[int, Any]:
        ranks = range(self._order.ranks)
        found = {rank: run_files.read(self._folder / f"{kind}-{rank}") for rank in ranks}
        return {rank: said for rank, said in found.items() if said is not None}


@contextmanager
def _alive(folder: Path, trouble: list[OSError]) -> Iterator[None]:
    """Show the ranks every second that the runner still waits for them."""
    over = Event()

    def live() -> None:
        number = failed = 0
        while not over.wait(BEAT_SECONDS):
            number += 1
            try:
                run_files.write(folder / ALIVE, number)
                failed = 0
            except OSError as error:
                failed += 1
                if failed == TROUBLED:
                    trouble.append(error)

    thread = Thread(target=live, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


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
