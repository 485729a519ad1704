"""A separate process redraws a chart in the notebook while the cell runs.

It is niced down and rests twenty times as long as it draws, which takes a good part of a second.
The notebook's process only passes the finished picture on, from a thread.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gpumon import launch
from gpumon.errors import MonitorError
from gpumon.trace import Trace, read
from gpumon.trace_files import write_atomically

REST = 20.0


def in_notebook() -> bool:
    """Whether this is the process behind a notebook, which can show pictures."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


def chart_file(prefix: Path) -> Path:
    return prefix.with_name(f".{prefix.name}.live.png")


class LiveView:
    """Keeps one output of the cell up to date until ``stop()``."""

    def __init__(
        self, prefix: Path, period: float, put: Callable[[bytes], object] | None = None
    ) -> None:
        self._prefix, self._period = prefix, period
        self._put = put or _notebook_output()
        self._file = chart_file(prefix)
        self._file.unlink(missing_ok=True)
        config = {"path": str(prefix), "period": period, "parent": os.getpid()}
        self._process = launch.start(
            "gpumon.live_chart", config, subprocess.DEVNULL, subprocess.DEVNULL
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="gpumon live", daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        shown = 0
        while not self._ended.wait(self._period / 4):
            with contextlib.suppress(FileNotFoundError):
                changed = self._file.stat().st_mtime_ns
                if changed != shown:
                    self._put(self._file.read_bytes())
                    shown = changed

    def stop(self) -> None:
        """Show a last picture of the whole trace, and end the process that draws."""
        self._ended.set()
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._thread.join(5)
        # What it was writing lies beside it, under its number.
        for file in (self._file, self._file.with_name(f".gpumon-{self._process.pid}.png")):
            file.unlink(missing_ok=True)
        self._put(_draw(read(self._prefix)))


def _draw(trace: Trace) -> bytes:
    return trace.plot()._repr_png_()  # type: ignore[attr-defined, no-any-return]


def _notebook_output() -> Callable[[bytes], object]:
    """What shows a PNG in an output of the cell, and each later one in its place."""
    from IPython.display import DisplayHandle, Image

    handle = DisplayHandle()
    ways = itertools.chain([handle.display], itertools.repeat(handle.update))
    return lambda data: next(ways)(Image(data))


def main(arguments: list[str]) -> int:
    """Draw again and again until standard input ends or the parent is gone; then once more."""
    config = json.loads(arguments[0])
    prefix = Path(config["path"])
    target = chart_file(prefix)
    with contextlib.suppress(OSError):
        os.nice(10)
    import gpumon.drawing.chart  # noqa: F401  # its seconds are none of the first drawing's

    wait, ended = config["period"], False
    while not ended:
        ended = bool(select.select([0], [], [], wait)[0])
        if os.getppid() != config["parent"]:
            return 0
        started = time.process_time()
        with contextlib.suppress(MonitorError, OSError):
            write_atomically(target, lambda file: file.write_bytes(_draw(read(prefix))))
        wait = max(config["period"], REST * (time.process_time() - started))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
