"""gpumon records what the GPUs and the host do in each phase of a program.

>>> import gpumon
>>> with gpumon.Monitor("runs/mine/trace") as monitor:
...     with monitor.phase("train", epoch=1, items=1120):
...         train()
>>> monitor.plot()

Recording needs no optional package. Reading a trace needs pandas, NumPy and, to draw, matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gpumon.errors import MonitorError, required_for
from gpumon.monitor import Monitor
from gpumon.phases import Marker, phase
from gpumon.trace_files import VERSION as __version__  # noqa: F401

if TYPE_CHECKING:
    from gpumon.trace import Trace, compare, read

__all__ = ["Marker", "Monitor", "MonitorError", "Trace", "compare", "phase", "read"]


def __getattr__(name: str) -> Any:
    if name not in ("Trace", "compare", "read"):
        raise AttributeError(f"module 'gpumon' has no attribute {name!r}")
    with required_for(f"gpumon.{name}"):
        return getattr(importlib.import_module("gpumon.trace"), name)
