"""gpumon: what the GPUs and the host were doing, lined up with what the program was doing.

>>> import gpumon
>>> with gpumon.Monitor("runs/mine/trace") as monitor:
...     with monitor.phase("train", epoch=1, images=1120):
...         train()
>>> monitor.plot()

Importing gpumon is cheap: pandas, NumPy and matplotlib are loaded only when a trace is read
back or drawn, because the sampling process imports this package too and must stay small.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gpumon.errors import MonitorError
from gpumon.marks import Marker, phase
from gpumon.monitor import Monitor

if TYPE_CHECKING:
    from gpumon.drawing.comparison import compare
    from gpumon.trace import Trace, read

__all__ = ["Marker", "Monitor", "MonitorError", "Trace", "compare", "phase", "read"]

_LAZY = {
    "Trace": "gpumon.trace",
    "compare": "gpumon.drawing.comparison",
    "read": "gpumon.trace",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version("chexnet-compare")
        except metadata.PackageNotFoundError:  # this folder alone, copied into another project
            return "not installed"
    if name not in _LAZY:
        raise AttributeError(f"module 'gpumon' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)
