"""``gpumon record`` records a command."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

from gpumon.errors import MonitorError
from gpumon.launch import RankInfo, compared_clocks
from gpumon.monitor import Monitor, create_files
from gpumon.phases import TRACE_VARIABLE
from gpumon.trace_files import VERSION, Writer, samples_file

OWN = ("KILL", "STOP", "CHLD", "CLD", "CONT", "TSTP", "TTIN", "TTOU")
"""Signals that cannot be caught, or are between a process and its terminal or its children."""
CRASHES = ("SEGV", "BUS", "FPE", "ILL", "TRAP", "SYS")
"""Signals of a process's own crash, after whose handler it would only crash again."""
PASSED_ON = signal.valid_signals() - {getattr(signal, f"SIG{name}") for name in OWN + CRASHES}
ALONE = RankInfo()
TO_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_LIBRARY = ctypes.CDLL(None)


def record(command: Sequence[str], monitor: Monitor, rank_info: RankInfo = ALONE) -> int:
    """Run a command under a monitor; gives its exit code, or 128 + n if signal n ended it.

    Signals are passed on, except those that were ignored when this process started, as SIGHUP is
    under nohup. Ctrl-C in a terminal reaches the command directly.
    """
    environment = {**os.environ, TRACE_VARIABLE: str(monitor.path)}
    program: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        if program is None:
            early.append(number)
        elif number != signal.SIGINT or not os.isatty(0):
            program.send_signal(number)

    before = {number: signal.getsignal(number) for number in PASSED_ON}
    before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
    try:
        for each in before:
            signal.signal(each, pass_on)
        # Ignored, as some shells and supervisors leave it, it takes the exit code of every child.
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with sampling(monitor, rank_info), monitor.phase("command", command=" ".join(command)):
            try:
                program = subprocess.Popen(command, env=environment, preexec_fn=end_with_parent)
            except OSError as error:
                raise MonitorError(
                    f"cannot run {command[0]}: {error.strerror}; check its name and path"
                ) from error
            for number in early:
                program.send_signal(number)
            code = program.wait()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler or signal.SIG_DFL)
    return 128 - code if code < 0 else code


def end_with_parent(by: int = signal.SIGTERM) -> None:
    """In a new process: have it end, by a signal, when the one that started it is killed."""
    _LIBRARY.prctl(TO_END_WITH_PARENT, by)


@contextlib.contextmanager
def sampling(monitor: Monitor, rank_info: RankInfo) -> Iterator[None]:
    """Sample, or only write phases, as befits a process's rank."""
    with contextlib.ExitStack() as stack:
        if not rank_info.is_host_sampler:
            stack.enter_context(phases_only(monitor))
        elif rank_info.is_distributed and rank_info.local_rank is not None:
            monitor.process_root = monitor.program_root  # all that the launcher started here
            stack.enter_context(monitor)
            rank = rank_info.rank or 0  # a job with local ranks has both
            name = monitor.path.name.removesuffix(f"-rank{rank}" if rank else "")
            first = monitor.path.with_name(name)
            stack.enter_context(compared_clocks(first, rank, monitor.marker.write_clock_offset))
        else:
            stack.enter_context(monitor)
        yield


@contextlib.contextmanager
def phases_only(monitor: Monitor) -> Iterator[None]:
    """A trace of phases alone, for a process whose host another one samples."""
    from gpumon.sampler import header_of

    why = "this rank marks phases; the first rank of its host samples"
    config = {"version": VERSION, "rank": monitor.rank, "interval": monitor.interval}
    header = header_of(config, [], [], {"available": False, "reason": why})
    lock = create_files(monitor)
    writer = Writer(samples_file(monitor.path))
    writer.line(header)
    try:
        yield
    finally:
        monitor.marker.close()
        writer.event(time.monotonic() - header["start (monotonic s)"], "end", why="closed")
        writer.close()
        lock.release()


def default_path(rank_info: RankInfo = ALONE) -> Path:
    """``gpumon-trace`` here, with a number if that is taken, so no earlier trace is lost."""
    if rank_info.is_distributed:
        raise MonitorError(
            "several ranks cannot agree on a free name for the trace: give one, the same for "
            "all, as in gpumon record --out runs/mine/trace -- command ..."
        )
    names = itertools.chain(["gpumon-trace"], map("gpumon-trace-{}".format, itertools.count(2)))
    return next(path for path in map(Path, names) if not samples_file(path).exists())
