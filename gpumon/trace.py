"""A Trace reads a recorded trace, and gives its tables, figures, metadata and charts."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from gpumon import export
from gpumon.diagnosis import Diagnosis, diagnose
from gpumon.errors import MonitorError, required_for
from gpumon.merge import merge
from gpumon.recording import Recording, load
from gpumon.summary import summarize
from gpumon.trace_files import expand
from gpumon.words import time_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

PathLike = Union[str, "os.PathLike[str]"]


def read(path: PathLike | Sequence[PathLike]) -> Trace:
    """Read the trace that a Monitor wrote.

    It may still be growing, or have been cut off by a kill.

    Args:
        path: the trace's prefix, folder or one of its files; ``*`` matches several. Several paths
            (ranks, machines) are merged on one time axis.

    Returns:
        The trace.

    Raises:
        MonitorError: there is no trace, or it cannot be read.
    """
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    if not paths:
        raise MonitorError("no trace was named; give the path that Monitor got")
    # A trace that is named twice, as by two patterns, counts once.
    prefixes = {os.path.realpath(prefix): prefix for one in paths for prefix in expand(one)}
    parts = [Trace(load(prefix)) for prefix in prefixes.values()]
    if len(parts) == 1:
        return parts[0]
    return Trace(merge([part.recording for part in parts]), parts)


class Trace:
    """What a Monitor recorded; ``parts`` are the traces it was merged from, if it was."""

    def __init__(self, recording: Recording, parts: Sequence[Trace] = ()) -> None:
        self.recording = recording
        self.parts = list(parts)
        self.path: Path = recording.prefix

    @property
    def header(self) -> dict[str, Any]:
        """The trace's first line: clock, host, devices and series as they were at the start."""
        return self.recording.header

    @property
    def devices(self) -> list[dict[str, Any]]:
        """The devices watched, GPUs first, the host last."""
        return self.recording.devices

    def to_pandas(self) -> pd.DataFrame:
        """Every series: index ``time (s)`` since the start, one column a key with its unit.

        A series holds its last value between its own readings. What could not be read is NaN;
        ``metadata()`` says why. Where samples are missing for more than three intervals, a row
        of NaN stands at the beginning of the gap.
        """
        return export.to_pandas(self.recording)

    def phases(self) -> pd.DataFrame:
        """Every marked phase in order of its start, one column for each attribute.

        ``open`` is True for a phase that was never closed (its end is the trace's end).
        """
        return export.phases_to_pandas(self.recording)

    def summary(self, by: str = "phase", idle_threshold: float = 5.0) -> pd.DataFrame:
        """Figures per phase and device; phase ``(all)`` is the whole run.

        by: ``"phase"`` joins the repeats of a phase, ``"repeat"`` those of several ranks at once,
        ``"mark"`` gives each its own row with its attributes. Means and percentiles are over time,
        not over samples. ``idle share`` is the
        share of time with a utilisation under ``idle_threshold`` percent. Device ``gpus`` is all
        GPUs together: mean utilisation, summed memory, power and energy, and the imbalance, which
        is how far the lowest GPU stays under the highest, in percent. For ``host`` the utilisation
        is the CPU's. Energy is the GPU's own counter, else the integral of its power
        (``metadata()["energy"]`` says which). ``throttled share`` is the share of time in which
        power or heat held the clocks down.

        What was not measured is in no figure: ``measured (s)`` says how much of the phase's seconds
        a row is of, ``energy covers (s)`` the same of its energy. A sum over GPUs is NaN where one
        of them was measured for less time than another, because it was lost. ``items/J`` takes
        the items of the seconds that the energy covers.
        """
        with required_for("Trace.summary()"):
            import pandas as pd

        columns, rows = summarize(self.recording, by, idle_threshold)
        table = pd.DataFrame(rows, columns=columns)
        table.attrs["idle threshold (%)"] = idle_threshold
        return table

    def diagnosis(self) -> list[Diagnosis]:
        """What held the program back, a sentence for each phase of which that is sure.

        Each has its ``phase``, its ``kind`` (input_bound, imbalanced, low_occupancy, throttled,
        shared, swapping or ok), its ``sentence`` and the ``figures`` that it rests on. The rules
        are in :mod:`gpumon.diagnosis`. A phase of which nothing is sure has none.
        """
        return diagnose(self.recording)

    def metadata(self) -> dict[str, Any]:
        """What was read, how, how often, and at what cost; ready for JSON."""
        recording = self.recording
        header = dict(recording.header)
        events = recording.events
        ended = [event for event in events if event["event"] == "end"]
        return {
            "gpumon": header["version"],
            "host": header["host"],
            "system": header["system"],
            "rank": header["rank"],
            "nvml": header["nvml"],
            "devices": header["devices"],
            "series": self._series(),
            "energy": self._energy(),
            "clock": header["clock"],
            "start (unix s)": header["start (unix s)"],
            "seconds": recording.end,
            "cadence": self._cadence(),
            "sampler": self._cost(ended[-1] if ended else None),
            "events": [event for event in events if event["event"] != "end"],
            "ended": ended[-1]["why"] if ended else "open or cut off",
            "damaged lines": recording.damaged,
            **({"parts": [part.metadata() for part in self.parts]} if self.parts else {}),
        }

    def plot(self, **options: Any) -> Figure:
        """The chart: a lane a device, a band a phase, on one time axis.

        theme: ``"light"`` or ``"dark"``. title: a line above. window: (start, end) in seconds.
        size: (width, height) in inches. devices: names of the lanes wanted. series: what else to
        draw, in separate lanes, by the beginnings of names: ``temperature``, ``clocks``,
        ``PCIe``, ``NVLink``, ``disk``, ``network``, ``page faults``, ... The figure
        shows itself as the value of a notebook cell; it does not touch pyplot.
        """
        with required_for("a chart"):
            from gpumon.drawing.chart import draw

        if "theme" in options:
            options["theme_name"] = options.pop("theme")
        return draw(self.recording, **options)

    def html(
        self, *, title: str | None = None, theme: str = "auto", series: Sequence[str] = ()
    ) -> str:
        """The chart as one self-contained page; see :mod:`gpumon.drawing.interactive`."""
        with required_for("an interactive chart"):
            from gpumon.drawing.interactive import page

        return page(self, title=title, theme=theme, series=series)

    def export(
        self, target: PathLike, kind: str | None = None, profile: PathLike | None = None
    ) -> Path:
        """Write a .csv, .parquet, .prom or .json file; see :func:`gpumon.export.export`."""
        return export.export(self.recording, target, kind, profile)

    def _series(self) -> list[dict[str, Any]]:
        """The header's series, with what the events say about those that failed later."""
        series = [dict(entry) for entry in self.recording.header["series"]]
        for number, entry in enumerate(series):
            if entry.get("reason") and not all(map(math.isnan, self.recording.columns[number])):
                entry["reason"] = None  # it failed when first asked and has worked since
        for event in self.recording.events:
            if event["event"] == "failed":
                moment = time_text(round(event["t"], 1), self.recording.end)
                for number in event["series"]:
                    series[number]["reason"] = f"from {moment} on: {event['reason']}"
        return series

    def _energy(self) -> dict[str, str]:
        found = {}
        for device in self.recording.gpus:
            name = device["name"]
            if self.recording.series(f"{name}/energy (J)") is not None:
                found[name] = "counter"
            elif self.recording.series(f"{name}/power (W)") is not None:
                found[name] = "integrated power"
            else:
                found[name] = "not available"
        return found

    def _cadence(self) -> dict[str, Any]:
        """The schedule as asked and as kept: lateness is against the grid of the interval."""
        times, interval = self.recording.sampled, self.recording.header["interval (s)"]
        if self.parts:
            return {"asked (s)": interval, "samples": len(times)}  # each part has its own
        if self.recording.ranges is not None:
            return {"asked (s)": interval, "read as means over (s)": self.recording.step}
        result: dict[str, Any] = {"asked (s)": interval, "samples": len(times)}
        # The last sample of a closed trace is taken at the stop request, off the grid.
        closed = any(event["event"] == "end" for event in self.recording.events)
        grid = times[:-1] if closed else times
        if len(grid) < 2:
            return result
        late = [moment - math.floor(moment / interval + 1e-6) * interval for moment in grid]
        gaps = [after - before for before, after in zip(grid, grid[1:])]
        result |= {
            "reached, median (s)": round(statistics.median(gaps), 5),
            "reached, p99 (s)": round(_p99(gaps), 5),
            "late, p99 (ms)": round(1000 * _p99(late), 2),
            "within 10 ms (%)": round(
                100 * sum(seconds < 0.010 for seconds in late) / len(late), 2
            ),
            "missed": round(grid[-1] / interval) + 1 - len(grid),
        }
        return result

    def _cost(self, end: dict[str, Any] | None) -> dict[str, Any]:
        """The sampler's own cost: exact from its last line, else from its series."""
        seconds = self.recording.end
        if self.parts:
            return {}
        if end is not None:
            used = end.get("sampler cpu (s)")
            share = None if used is None or not seconds else round(100 * used / seconds, 3)
            return {
                "cpu (s)": used,
                "memory (MiB)": end.get("sampler memory (MiB)"),
                "cpu, start-up included (% of a core)": share,
                "cpu (% of a core)": self._own_share(),
            }
        return {"cpu (% of a core)": self._own_share()}

    def _own_share(self) -> float | None:
        own = self.recording.series("sampler/cpu (%)")
        return (
            None if own is None else round(statistics.fmean(v for v in own if not math.isnan(v)), 3)
        )


def _p99(values: Sequence[float]) -> float:
    """The 99th percentile, between the two nearest values."""
    if len(values) < 2:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[98]
