"""The IPython magic ``%%gpumon`` records a notebook cell and shows its chart."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from gpumon.errors import MonitorError, required_for
from gpumon.monitor import Monitor
from gpumon.record import default_path

USAGE = "%%gpumon [TRACE] [--interval SECONDS] [--live]"


def register(shell: Any) -> None:
    """Add the magic to an IPython shell."""

    def gpumon(line: str, cell: str) -> None:
        path, interval, live = options(line)
        with required_for("%%gpumon"):
            import matplotlib  # noqa: F401
        with Monitor(path, interval, live=live) as monitor:
            done = shell.run_cell(cell)
        done.raise_error()  # otherwise "run all cells" would continue with the next cell
        if not live:
            from IPython.display import display

            display(monitor.plot())

    shell.register_magic_function(gpumon, magic_kind="cell", magic_name="gpumon")


def options(line: str) -> tuple[Path, float, bool]:
    """The trace, the interval (seconds) and whether it is live, from what is behind ``%%gpumon``.

    Raises MonitorError for what it cannot take.
    """
    path: Path | None = None
    interval, live = 0.1, False
    try:
        words = iter(shlex.split(line))
    except ValueError as error:  # a quote that is not closed
        raise MonitorError(f"{error} in {line}: {USAGE}") from None
    for word in words:
        if word == "--live":
            live = True
        elif word == "--interval":
            try:
                interval = float(next(words, ""))
            except ValueError:
                raise MonitorError(f"--interval needs seconds: {USAGE}") from None
        elif word.startswith("-"):
            raise MonitorError(f"{word} is not an option: use {USAGE}")
        elif path is not None:
            raise MonitorError(f"{word} is a second trace, beside {path}: {USAGE}")
        else:
            path = Path(word)
    return path or default_path(), interval, live
