"""A separate process redraws a chart in the notebook while the cell runs.

matplotlib would hold up the training for a good part of a second a picture, so the drawing is
done by a separate process (``python -m gpumon.live_chart CONFIG``), niced down and resting twenty
times as long as it draws. The notebook's process only passes the finished picture on, from a
thread, through IPython's display.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from gpumon import launch
from gpumon.errors import MonitorError
from gpumon.trace import Trace, read
from gpumon.trace_files import temporary_path, write_atomically

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

    def __init__(self, prefix: Path, period: float, display: Any = None) -> None:
        self._prefix = prefix
        self._file = chart_file(prefix)
        self._file.unlink(missing_ok=True)
        self._display = display or _NotebookOutput
        self._handle: Any = None
        self._shown = 0
        self._period = period
        config = {"path": str(prefix), "period": period, "parent": os.getpid()}
        self._process = launch.start(
            "gpumon.live_chart", config, subprocess.DEVNULL, subprocess.DEVNULL
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="gpumon live", daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        while not self._ended.wait(self._period / 4):
            self._show()

    def _show(self) -> None:
        try:
            changed = self._file.stat().st_mtime_ns
            if changed == self._shown:
                return
            data = self._file.read_bytes()
        except OSError:
            return
        self._shown = changed
        self._put(data)

    def _put(self, data: bytes) -> None:
        if self._handle is None:
            self._handle = self._display(data)
        else:
            self._handle.update(data)

    def stop(self) -> None:
        """One last picture of the whole trace, drawn here, and nothing is left behind."""
        self._ended.set()
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._thread.join(5)
        for file in (self._file, temporary_path(self._file, self._process.pid)):
            file.unlink(missing_ok=True)
        self._put(_draw(read(self._prefix)))


def _draw(trace: Trace) -> bytes:
    return trace.plot()._repr_png_()  # type: ignore[attr-defined, no-any-return]


class _NotebookOutput:
    """An output of a cell that holds one PNG, through IPython."""

    def __init__(self, data: bytes) -> None:
        from IPython.display import Image, display

        self._image = Image
        self._handle = display(Image(data), display_id=True)

    def update(self, data: bytes) -> None:
        self._handle.update(self._image(data))


def main(arguments: list[str]) -> int:
    """Draw again and again until standard input ends or the parent is gone; then once more."""
    config = json.loads(arguments[0])
    prefix = Path(config["path"])
    target = chart_file(prefix)
    with contextlib.suppress(OSError):
        os.nice(10)
    import gpumon.drawing.chart  # noqa: F401  # its seconds are none of the first drawing's

    wait = config["period"]
    ended = False
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
