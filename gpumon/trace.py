"""A Trace reads a recorded trace, and returns its tables, metadata and charts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import pandas as pd

from gpumon import export
from gpumon.diagnosis import Diagnosis, diagnose
from gpumon.errors import MonitorError
from gpumon.merge import merge
from gpumon.recording import Recording, load
from gpumon.summary import summarize
from gpumon.trace_files import expand
from gpumon.words import time_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PathLike = Union[str, "os.PathLike[str]"]


def read(path: PathLike | Sequence[PathLike]) -> Trace:
    """Read a trace.

    The recording may still run, or may have been killed.

    Args:
        path: the trace's prefix, its folder or one of its files. ``*`` matches several traces, and
            a list names several. Traces of several ranks or hosts are merged on one time axis.

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


def compare(traces: Mapping[str, Trace | PathLike], **options: Any) -> Figure:
    """Draw several runs, one above the other, on one time axis.

    A lane shows the mean utilisation of a run's GPUs with the range between them, and their SM
    activity; without GPUs, the CPU.

    Args:
        traces: the traces or their paths, by the label of each run.
        **options: ``theme``: ``"light"`` (default) or ``"dark"``. ``title``: text above the chart.
            ``align``: the phase whose first start is time 0 in each run, such as ``"train"`` to
            exclude start-up; by default the start of each trace. ``until``: a list of phases; each
            lane ends with the last end of any of them.

    Returns:
        A matplotlib Figure, which shows itself as the value of a notebook cell.

    Raises:
        MonitorError: a trace cannot be read, or no trace has the phase ``align``.
    """
    from gpumon.drawing import chart

    found = {name: t if isinstance(t, Trace) else read(t) for name, t in traces.items()}
    return chart.compare({name: trace.recording for name, trace in found.items()}, **options)


class Trace:
    """A recorded trace, with its tables, diagnosis and charts; :func:`gpumon.read` returns it.

    Args:
        recording: the recorded values.
        parts: the traces that were merged into this one; empty: none were.
    """

    def __init__(self, recording: Recording, parts: Sequence[Trace] = ()) -> None:
        self.recording = recording
        self.parts = list(parts)
        self.path: Path = recording.prefix

    @property
    def header(self) -> dict[str, Any]:
        """The trace's header: clock, host, devices and series at the start of the recording."""
        return self.recording.header

    @property
    def devices(self) -> list[dict[str, Any]]:
        """The recorded devices: GPUs first, the host last."""
        return self.recording.devices

    def to_pandas(self) -> pd.DataFrame:
        """Return every series as a table, one row per sample.

        Between its own readings, a series keeps its last value. A value that could not be read is
        NaN, and so is a row where a gap begins.

        Returns:
            A DataFrame with the index ``time (s)`` since the start of the recording, and one column
            per series with its unit in the name, such as ``gpu0/power (W)``.
        """
        return self.recording.frame.copy()

    def phases(self) -> pd.DataFrame:
        """Return every marked phase as a table, in order of start, with a column per attribute.

        Returns:
            A DataFrame. Its column ``open`` is True for a phase that was never closed; the phase
            then ends with the trace.
        """
        spans = self.recording.spans
        columns = ["phase", "depth", "start (s)", "end (s)", "seconds", "process", "open"]
        rows = [
            (m.name, m.depth, m.start, m.end, m.end - m.start, m.process, m.open) for m in spans
        ]
        more = pd.DataFrame([span.attributes for span in spans])
        return pd.DataFrame(rows, columns=columns).join(more.drop(columns=columns, errors="ignore"))

    def summary(self, by: str = "phase") -> pd.DataFrame:
        """Return the numbers of each phase and device; phase ``(all)`` is the whole recording.

        Means and percentiles are over time, without gaps: ``measured (s)``. GPUs below 5 %
        utilisation are idle; they are throttled while power or heat limits the clocks. The row of
        device ``gpus`` has the mean utilisation of all GPUs; total memory, power and energy, unless
        a GPU was lost; and the imbalance, which is how far the lowest GPU is below the highest, in
        percent. For device ``host``, the utilisation is the CPU's. Energy is from the GPU's
        counter, or else integrated from its power, over ``energy covers (s)``.

        Args:
            by: ``"phase"``: one row for all repeats of a phase. ``"repeat"``: one row per repeat,
                with simultaneous phases of several ranks joined.

        Returns:
            A DataFrame with one row per phase and device.

        Raises:
            MonitorError: an argument is not valid.
        """
        return summarize(self.recording, by)

    def diagnosis(self) -> list[Diagnosis]:
        """Return what limited each phase, as a sentence with its numbers.

        Returns:
            A list with ``phase``, ``kind``, ``sentence`` and ``metrics`` for each phase that
            matches a rule: the first in the order shared, input_bound, throttled, imbalanced,
            low_occupancy and ok.
        """
        return diagnose(self.recording)

    def metadata(self) -> dict[str, Any]:
        """Return how the trace was recorded: source and rate of each series, events, and cost.

        Returns:
            A dictionary that can be written as JSON. ``series`` gives the reason for each missing
            series, and ``sampler`` the CPU time and memory of the sampling process.
        """
        recording, header = self.recording, self.recording.header
        end = next((event for event in recording.events if event["event"] == "end"), {})
        cost = {"cpu (s)": "sampler cpu (s)", "memory (MiB)": "sampler memory (MiB)"}
        asked = recording.step / header.get("thinned", 1)
        samples = {"asked (s)": asked, "kept (s)": recording.step}
        samples["samples"] = len(recording.sampled)
        names = ("host", "system", "rank", "nvml", "devices", "start (unix s)")
        return {
            "gpumon": header["version"],
            **{name: header[name] for name in names},
            "series": self._series(),
            "energy": self._energy(),
            "seconds": recording.end,
            "cadence": samples,
            "sampler": {} if self.parts else {name: end.get(of) for name, of in cost.items()},
            "events": [event for event in recording.events if event["event"] != "end"],
            "ended": end.get("why", "open or cut off"),
            "damaged lines": recording.damaged,
            **({"parts": [part.metadata() for part in self.parts]} if self.parts else {}),
        }

    def plot(self, **options: Any) -> Figure:
        """Draw the chart: a lane per device and a band of phases, on one time axis.

        As the value of a notebook cell, the figure shows itself. It does not use pyplot.

        Args:
            **options: ``theme``: ``"light"`` (default) or ``"dark"``. ``title``: text above the
                chart. ``devices``: names of the lanes to draw, such as ``["gpu0"]``. ``series``:
                more lanes, by the beginnings of names: ``temperature``, ``clocks``, ``PCIe``,
                ``NVLink``, ``disk``, ``network``.

        Returns:
            A matplotlib Figure.

        Raises:
            MonitorError: an option's value is not valid.
        """
        from gpumon.drawing import chart

        return chart.draw(self.recording, **options)

    def html(
        self, *, title: str | None = None, theme: str = "auto", series: Sequence[str] = ()
    ) -> str:
        """Return the chart as an interactive web page in one file, which loads nothing.

        Args:
            title: text above the chart. None: the trace's name.
            theme: ``"auto"``, which follows the reader's system, ``"light"`` or ``"dark"``.
            series: more lanes, as for :meth:`plot`.

        Returns:
            The HTML.

        Raises:
            MonitorError: an argument is not valid.
        """
        from gpumon.drawing import timeline

        return timeline.page(self.recording, title=title, theme=theme, series=series)

    def export(self, target: PathLike) -> Path:
        """Write the trace to a file in another program's format.

        A CSV file contains every sample, with its wall time and outermost phase. A ``.json`` file
        is a Chrome trace, which Perfetto opens. An existing file is replaced as a whole.

        Args:
            target: the file to write, whose extension is ``.csv`` or ``.json``.

        Returns:
            The file.

        Raises:
            MonitorError: the format is unknown, or the file cannot be written.
        """
        return export.export(self.recording, target)

    def _series(self) -> list[dict[str, Any]]:
        """The header's series, with what the events say about those that failed later."""
        series = [dict(entry) for entry in self.recording.header["series"]]
        for entry in series:
            if entry.get("reason") and self.recording.series(entry["key"]) is not None:
                entry["reason"] = None  # it failed when first asked and has worked since
        for event in self.recording.events:
            if event["event"] == "failed":
                moment = time_text(round(event["t"], 1), self.recording.end)
                for number in event["series"]:
                    series[number]["reason"] = f"from {moment} on: {event['reason']}"
        return series

    def _energy(self) -> dict[str, str]:
        def way(gpu: str) -> str:
            if self.recording.series(f"{gpu}/energy (J)") is not None:
                return "counter"
            power = self.recording.series(f"{gpu}/power (W)")
            return "not available" if power is None else "integrated power"

        return {gpu["name"]: way(gpu["name"]) for gpu in self.recording.gpus}
