"""Run a notebook in a kernel, and stop the kernel and every process that it started."""

import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from string import Template
from threading import Thread
from typing import Any

import psutil

from data_prep.errors import printable
from helpers.errors import naming
from helpers.frameworks import temporary_files
from helpers.frameworks.installed import required
from helpers.launch import environment_variables, processes, this_notebook
from helpers.runner import hangs, shutdown

MARK = "ROSETTA_BATCH"
"""Environment variable that a kernel and all it starts inherit: the folder they run for."""
GRACE_SECONDS = 10.0
"""The time for an interrupted kernel to write its record and close its trace."""
CLOSING_SECONDS = 5.0
"""The time for closing the sockets to a kernel that has ended."""
LEAVING_SECONDS = 1.0
"""The time for a kernel to end by itself after all cells ran without an error.

Half of it when asked, half after a SIGTERM. ipykernel waits until its children end, and
multiprocessing's resource tracker ends only after the kernel does. Other kernels have
jupyter_client's five seconds: they may have ranks to end, or a file to write.
"""
KILLED_SECONDS = 5.0
"""The time to wait for killed processes."""


class KernelError(Exception):
    """A kernel could not be started."""


def execute(
    source: Path,
    target: Path,
    parameters: dict[str, Any],
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
        heard: called, from any thread, with each line that the run says of itself, and whether it
            is soon replaced.
        settled: once it was interrupted, whether the kernel has written down what it has.
        stall_minutes: without progress, after which it is ended (``helpers.runner.hangs``).
        environment: variables in addition to the runner's that reach the kernel, with ``MARK``.

    Raises:
        papermill.PapermillExecutionError: a cell failed.
        KernelError: the kernel could not be started.
        hangs.Stalled: there was no progress for ``stall_minutes``.
        OSError: what the runner itself writes, ``target`` first of all, cannot be written.
        Exception: the kernel died.
    """
    import papermill
    from jupyter_core.utils import run_sync
    from papermill.engines import papermill_engines

    from helpers.runner import notebook_engine

    # It warns of parameters that a notebook's cell leaves to the run, such as the seed.
    logging.getLogger("papermill").setLevel(logging.ERROR)
    manager = notebook_engine.Manager(kernel)

    def at_cell(section: str, cell: int, cells: int) -> None:
        watch.hear()
        reached(section, cell, cells)

    def give_up() -> None:
        _interrupt(_pid(manager), settled)
        stop(_pid(manager))

    engine = notebook_engine.of(manager, source, target, at_cell)
    papermill_engines.register("watched", engine)
    watch = hangs.Watch(target.parent, stall_minutes, give_up, heard)
    left = ExitStack()
    try:
        with shutdown.held():  # else a signal could leave an unknown folder
            own = left.enter_context(temporary_files.own("rosetta-"))
        manager.connection_file = f"{own}/connection.json"
        with target.with_name("kernel.log").open("wb") as log:  # native code's last words
            _start(
                manager,
                cwd=str(source.parent),
                stdout=log,
                stderr=log,
                extra_arguments=["--HistoryManager.hist_file=:memory:"],
                env={
                    **environment_variables.for_a_kernel(os.environ),
                    "TMPDIR": own,
                    this_notebook.VARIABLE: str(source),
                    **(environment or {}),
                },
            )
        with watch, naming(target):
            papermill.execute_notebook(
                *(str(path).replace("{", "{{").replace("}", "}}") for path in (source, target)),
                parameters=parameters,
                engine_name="watched",
                kernel_name=kernel,
                language="python",
                cwd=source.parent,
                progress_bar=False,
            )
        manager.shutdown_wait_time = LEAVING_SECONDS
    except (KeyboardInterrupt, Exception) as error:
        # papermill writes the notebook on its way out; an error there hides what it was stopped by.
        asked = error if isinstance(error, KeyboardInterrupt) else shutdown.raised()
        if asked is None:
            raise watch.error or error from None
        # asyncio would print a traceback for every interrupted task of nbclient, and nbclient, in
        # the name of papermill, that the kernel died.
        for name in ("asyncio", "papermill"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        give_up()
        raise asked from None
    finally:
        with shutdown.held():
            for client in manager.clients:
                client.stop_channels()
            stop(_pid(manager), lambda: run_sync(manager.shutdown_kernel)())
            _close(manager.context)
            if environment and MARK in environment:  # a kernel that died has lost its children
                stop_marked(Path(environment[MARK]))
            left.close()


def _close(context: Any) -> None:
    """Close all sockets, and wait for that, but not for ever.

    A signal between a socket's creation and its registration leaves a socket that no code can
    close. ZeroMQ would wait for it until the process ends.
    """
    closing = Thread(target=context.destroy, kwargs={"linger": 0}, daemon=True)
    closing.start()
    closing.join(CLOSING_SECONDS)


def reason_of(error: Exception) -> str:
    """One line for the table: the notebook's own error, or what happened to its kernel."""
    kind = type(error).__name__
    if kind == "PapermillExecutionError":
        said = f"{error.ename}: {error.evalue}"  # type: ignore[attr-defined]
    elif kind == "DeadKernelError":
        said = "the kernel died (out of memory, or a crash in native code): see kernel.log"
    elif isinstance(error, hangs.Stalled | KernelError):
        said = str(error)
    else:
        said = f"{kind}: {error}"
    return printable((said.strip().splitlines() or [kind])[0])


def stop(process: int | None, shut_down: Callable[[], None] | None = None) -> None:
    """End the kernel ``process`` and everything it started: loader workers, replicas, samplers.

    ``shut_down`` asks it politely first. A kernel leads a session of its own, so what it started
    is found even after it is gone itself.
    """
    if process is None:
        return
    members = family(process)  # before: a child with a session of its own is only found now
    if shut_down is not None and members:
        try:
            shut_down()
        except Exception as error:  # the kernel is being ended anyway
            logging.getLogger(__name__).debug("kernel %s: %s", process, error)
    _kill(members | family(process))


def stop_marked(folder: Path, spare: Callable[[Path], bool] = lambda of: False) -> None:
    """End the processes of an experiment, or of those in ``folder`` that are not to ``spare``.

    A process with another parent or in another session still has the mark in its environment.
    Processes without the mark are never ended.
    """
    marks = {member: mark(member.pid) for member in psutil.process_iter()}
    ours = {member: Path(of) for member, of in marks.items() if of and ".." not in Path(of).parts}
    ours = {member: of for member, of in ours.items() if of.is_relative_to(folder)}
    lives = {of: spare(of) for of in set(ours.values())}
    _kill({member for member, of in ours.items() if not lives[of]})


def mark(process: int) -> str | None:
    """The folder of the experiment that a process runs for; None if it has no mark."""
    try:
        return psutil.Process(process).environ().get(MARK)
    except (psutil.Error, OSError):  # it has ended, or belongs to another user
        return None


def _kill(members: set[psutil.Process]) -> None:
    members = {member for member in members if member.pid != os.getpid()}
    for member in members:
        with suppress(psutil.Error):
            member.kill()
    end, alive = time.monotonic() + KILLED_SECONDS, list(members)
    while alive and time.monotonic() < end:
        _, alive = psutil.wait_procs(alive, timeout=0.05)
        alive = [member for member in alive if processes.lives(member.pid)]


def family(process: int) -> set[psutil.Process]:
    """The process, its descendants and all members of the session it leads, as they are now."""
    members: set[psutil.Process] = set()
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(process)
        members |= {root, *root.children(recursive=True)}
    for other in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(other.pid) == process:
                members.add(other)
    return {member for member in members if member.pid != os.getpid()}


def _interrupt(process: int | None, settled: Callable[[], bool]) -> None:
    """Ctrl-C in the kernel, as Jupyter's stop button does it; waits until ``settled``."""
    if process is None:
        return
    try:
        os.killpg(process, signal.SIGINT)
    except (ProcessLookupError, PermissionError):
        return
    end = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < end and processes.lives(process) and not settled():
        time.sleep(0.05)


def _pid(manager: Any) -> int | None:
    """The kernel's process id, also after nbclient let go of it."""
    return getattr(manager.provisioner, "pid", None) or None


def start_of(kernel: str) -> tuple[str, dict[str, str]]:
    """The Python of a Jupyter kernel, and the variables that Jupyter gives it.

    Its ``PATH`` ends in ``${PATH}``.
    """
    spec = required("jupyter_client.kernelspec").KernelSpecManager().get_kernel_spec(kernel)
    environ = {name: Template(text).safe_substitute(os.environ) for name, text in spec.env.items()}
    return spec.argv[0], environ


def _start(manager: Any, **how: Any) -> None:
    from jupyter_core.utils import run_sync

    try:
        run_sync(manager.start_kernel)(**how)
    except OSError as error:
        raise KernelError(f"the kernel could not be started: {error}") from error
