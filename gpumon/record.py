"""``gpumon record``: any command under the monitor, which keeps out of its way."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from gpumon.errors import MonitorError
from gpumon.marks import TRACE_VARIABLE
from gpumon.monitor import Monitor

FORWARDED = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGWINCH")
    if hasattr(signal, name)
]


def record(command: Sequence[str], monitor: Monitor) -> int:
    """Run a command under a monitor; gives its exit code, or 128 + n if signal n ended it.

    Signals that this process gets are passed on. Ctrl-C in a terminal reaches the command by
    itself, and this process waits for what it makes of it.
    """
    environment = {**os.environ, TRACE_VARIABLE: str(monitor.path)}
    started: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: FrameType | None) -> None:
        from_terminal = number == signal.SIGINT and os.isatty(0)
        for program in started:
            if not from_terminal:
                program.send_signal(number)

    with monitor, monitor.phase("command", command=" ".join(command)):
        before = {number: signal.signal(number, forward) for number in FORWARDED}
        try:
            started.append(subprocess.Popen(command, env=environment))
            code = started[0].wait()
        except OSError as error:
            raise MonitorError(f"cannot run {command[0]}: {error.strerror}") from error
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return 128 - code if code < 0 else code


def default_path() -> Path:
    """``gpumon-trace`` here, with a number if that is taken, so no earlier trace is lost."""
    number = 1
    path = Path("gpumon-trace")
    while path.with_name(path.name + ".jsonl").exists():
        number += 1
        path = Path(f"gpumon-trace-{number}")
    return path
