"""gpumon records what the GPUs and the host do in each phase of a program.

>>> import gpumon
>>> with gpumon.Monitor("runs/mine/trace") as monitor:
...     with monitor.phase("train", epoch=1, items=1120):
...         train()
>>> monitor.plot()

Recording, ``gpumon summary`` and the CSV export need no optional package. Charts need matplotlib
and NumPy, tables in Python need pandas, and ``gpumon watch`` needs rich. gpumon imports these
packages only when a function needs them, because the sampling process must stay small.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gpumon.errors import MonitorError, required_for
from gpumon.monitor import Monitor
from gpumon.phases import Marker, phase
from gpumon.trace_format import VERSION as __version__  # noqa: F401

if TYPE_CHECKING:
    from gpumon.drawing.comparison import compare
    from gpumon.trace import Trace, read

__all__ = ["Marker", "Monitor", "MonitorError", "Trace", "compare", "phase", "read"]

_LAZY = {
    "Trace": "gpumon.trace",
    "compare": "gpumon.drawing.comparison",
    "read": "gpumon.trace",
}
_MODULES = ("callbacks",)


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic ``%%gpumon``; IPython calls this for ``%load_ext gpumon``."""
    from gpumon.record import register

    register(shell)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"gpumon.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'gpumon' has no attribute {name!r}")
    with required_for(f"gpumon.{name}"):
        return getattr(importlib.import_module(_LAZY[name]), name)
