"""Monitor inherits these methods, which read the trace that it is writing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from gpumon.diagnosis import Diagnosis
    from gpumon.trace import Trace


class TraceMethods:
    """The methods of a :class:`gpumon.Trace`, for the trace at ``path`` as far as it is written."""

    path: Path

    def read(self) -> Trace:
        """The trace so far, as :func:`gpumon.read` gives it."""
        from gpumon.trace import read

        return read(self.path)

    def to_pandas(self) -> pd.DataFrame:
        """Every series; see :meth:`gpumon.Trace.to_pandas`."""
        return self.read().to_pandas()

    def phases(self) -> pd.DataFrame:
        """Every marked phase; see :meth:`gpumon.Trace.phases`."""
        return self.read().phases()

    def summary(self, by: str = "phase", idle_threshold: float = 5.0) -> pd.DataFrame:
        """Figures per phase and device; see :meth:`gpumon.Trace.summary`."""
        return self.read().summary(by=by, idle_threshold=idle_threshold)

    def diagnosis(self) -> list[Diagnosis]:
        """A sentence for each phase of which it is sure; see :meth:`gpumon.Trace.diagnosis`."""
        return self.read().diagnosis()

    def metadata(self) -> dict[str, Any]:
        """How the trace was recorded, and what it cost; see :meth:`gpumon.Trace.metadata`."""
        return self.read().metadata()

    def plot(self, **options: Any) -> Figure:
        """The chart; see :meth:`gpumon.Trace.plot`."""
        return self.read().plot(**options)
