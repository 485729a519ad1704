"""``gpumon record``: any command under the monitor, which keeps out of its way."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from gpumon.errors import MonitorError
from gpumon.marks import TRACE_VARIABLE
from gpumon.monitor import Monitor

OWN = ("KILL", "STOP", "CHLD", "CLD", "CONT", "TSTP", "TTIN", "TTOU")
"""Signals that cannot be caught, or are between a process and its terminal or its children."""
FAULTS = ("SEGV", "BUS", "FPE", "ILL", "TRAP", "SYS")
"""Signals of a process's own faults, after whose handler it would only fault again."""
PASSED_ON = signal.valid_signals() - {
    getattr(signal, f"SIG{name}") for name in OWN + FAULTS if hasattr(signal, f"SIG{name}")
}
TO_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None


def record(command: Sequence[str], monitor: Monitor) -> int:
    """Run a command under a monitor.

    Signals to this process are passed on, except those that were ignored when it started, as SIGHUP
    is under nohup. Ctrl-C in a terminal reaches the command directly, and this process waits for it
    to react.

    Args:
        command: the program and its arguments.
        monitor: records while it runs.

    Returns:
        The command's exit code, or 128 + n if signal n ended it.

    Raises:
        MonitorError: the command cannot be started.
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
        with monitor, monitor.phase("command", command=" ".join(command)):
            try:
                program = subprocess.Popen(command, env=environment, preexec_fn=_end_with_parent)
            except OSError as error:
                raise MonitorError(f"cannot run {command[0]}: {error.strerror}") from error
            for number in early:
                program.send_signal(number)
            code = program.wait()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler or signal.SIG_DFL)
    return 128 - code if code < 0 else code


def _end_with_parent() -> None:
    """In the new process: have it end (SIGTERM) when this one is killed, where the system can."""
    if _LIBRARY is not None:
        _LIBRARY.prctl(TO_END_WITH_PARENT, signal.SIGTERM)


def default_path() -> Path:
    """``gpumon-trace`` here, with a number if that is taken, so no earlier trace is lost."""
    number = 1
    path = Path("gpumon-trace")
    while path.with_name(path.name + ".jsonl").exists():
        number += 1
        path = Path(f"gpumon-trace-{number}")
    return path
