"""This module follows a trace that is being written, and shows its latest values in a terminal."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gpumon.errors import MonitorError, required_for
from gpumon.stats import gap_threshold
from gpumon.trace_files import marks_file, read_header, samples_file
from gpumon.trace_format import Damaged, is_event, is_mark, is_sample, parse
from gpumon.words import THROTTLING, duration_text, memory_text, reasons, time_text

BLOCKS = " ▁▂▃▄▅▆▇█"
# What the columns beside the last minute need.
OTHERS = 66

if TYPE_CHECKING:
    from rich.console import RenderableType


class Tail:
    """The whole new lines of a growing file since the last look.

    Where another file has taken its place, as when a long trace begins a new part or a later
    recording begins, the rest of the old one comes first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self._rest = b""

    def lines(self) -> list[Any]:
        values = self._new()
        if not self._same():
            self.close()
            values += self._new()
        return values

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._rest = None, b""

    def _same(self) -> bool:
        """Whether the file that is read is still that of the name, or none has taken its place."""
        try:
            there = self.path.stat()
        except OSError:
            return True
        return self._file is None or os.path.samestat(os.fstat(self._file.fileno()), there)

    def _new(self) -> list[Any]:
        try:
            self._file = self._file or self.path.open("rb")
            data = self._file.read()
        except OSError:
            return []
        *whole, self._rest = (self._rest + data).split(b"\n")
        values = []
        for line in whole:
            with contextlib.suppress(Damaged):
                values.append(parse(line))
        return values

    def __del__(self) -> None:
        self.close()


class Follower:
    """The latest values of a trace, a history of each, and the phases that are open."""

    def __init__(self, prefix: Path, history: int = 600) -> None:
        self._prefix, self._longest = prefix, history
        self._begin()

    def _begin(self) -> None:
        self.header = read_header(self._prefix)
        self.now: dict[str, float] = {}
        self.time = 0.0
        self.ended: str | None = None
        self.lost: set[str] = set()
        self._keys = [series["key"] for series in self.header["series"]]
        self.history: dict[str, deque[float]] = {
            key: deque(maxlen=self._longest) for key in self._keys
        }
        self._samples = Tail(samples_file(self._prefix))
        self._marks = Tail(marks_file(self._prefix))
        self._open: dict[tuple[Any, Any], str] = {}
        self._last = -1.0
        self.poll()

    @property
    def phase(self) -> str:
        """The phase opened last that is still open; empty between phases."""
        return next(reversed(self._open.values()), "")

    def poll(self) -> bool:
        """Take in what is new; True if there was any."""
        new = False
        for line in self._samples.lines():
            if isinstance(line, dict) and "gpumon" in line and self._is_another():
                for tail in (self._samples, self._marks):
                    tail.close()
                self._begin()
                return True
            if is_sample(line, len(self._keys)):
                if line[0] > self._last:  # a file that begins anew has some of the last again
                    self._last = line[0]
                    self._sample(line)
                    new = True
            elif is_event(line, len(self._keys)):
                self._event(line)
        for line in filter(is_mark, self._marks.lines()):
            if line[0] == "B":
                self._open[line[2], line[3]] = line[4]
            else:
                self._open.pop((line[2], line[3]), None)
        return new

    def _is_another(self) -> bool:
        """Whether a later recording has taken the trace's place."""
        began = "start (unix s)"
        with contextlib.suppress(MonitorError):
            return bool(read_header(self._prefix)[began] != self.header[began])
        return False

    def seconds_silent(self, moment: float) -> float:
        """Seconds without a sample until ``moment`` (unix s), where that is a gap; else 0."""
        since = moment - self.header["start (unix s)"] - self.time
        return since if self.ended is None and since > gap_threshold(self._interval) else 0.0

    @property
    def _interval(self) -> float:
        return float(self.header["interval (s)"])

    def _event(self, event: dict[str, Any]) -> None:
        if event["event"] == "end":
            self.ended = event["why"]
        elif event["event"] == "device lost":
            self.lost.add(event["device"])

    def _sample(self, line: list[Any]) -> None:
        missed = 0
        if line[0] - self.time > gap_threshold(self._interval):
            missed = round((line[0] - self.time) / self._interval) - 1
        self.time = line[0]
        for place in range(1, len(line), 2):
            value = line[place + 1]
            self.now[self._keys[line[place]]] = math.nan if value is None else value
        for key, values in self.history.items():
            values.extend([math.nan] * min(missed, values.maxlen or 0))
            values.append(self.now.get(key, math.nan))


def sparkline(values: Sequence[float], width: int) -> str:
    """The last values (percent) as blocks, each the mean of its share; a gap where unknown."""
    if not values:
        return ""
    each = max(1, math.ceil(len(values) / width))
    groups = [list(values[max(0, end - each) : end]) for end in range(len(values), 0, -each)]
    text = ""
    for group in reversed(groups[:width]):
        known = [value for value in group if not math.isnan(value)]
        level = sum(known) / len(known) if known else 0.0
        text += BLOCKS[min(8, max(0, math.ceil(level * 8 / 100)))] if known else "·"
    return text


def render(follower: Follower, columns: int = 100) -> RenderableType:
    """What a terminal of so many columns shows of a trace now."""
    with required_for("gpumon watch"):
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

    width = min(60, max(8, columns - OTHERS))
    header = follower.header
    silent = follower.seconds_silent(time.time())
    # What was last heard is not what is now.
    now = {} if silent else follower.now
    table = Table(box=None, padding=(0, 1), header_style="dim", expand=False)
    for name in ("device", "last minute", "busy", "SM", "memory", "power", "temp", ""):
        left = name in ("device", "last minute", "")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for device in header["devices"]:
        table.add_row(*(Text(*cell) for cell in _row(follower, now, device, width)))
    title = Text.assemble(
        ("gpumon ", "bold"),
        f"{header['host']}  {time_text(int(follower.time), follower.time)}  ",
        (follower.phase or "no phase", "bold cyan" if follower.phase else "dim"),
        (f"  ended: {follower.ended}" if follower.ended else "", "yellow"),
        (f"  no sample for {duration_text(round(silent))}" if silent else "", "yellow"),
    )
    parts: list[RenderableType] = [title, table]
    reason = header["nvml"].get("reason")
    if reason:
        parts.append(Text(f"No GPU here: {reason}", style="dim"))
    share = now.get("sampler/cpu (%)", math.nan)
    if not math.isnan(share):
        parts.append(Text(f"the sampler itself: {share:.1f} % of a core", style="dim"))
    return Group(*parts)


def _row(
    follower: Follower, now: dict[str, float], device: dict[str, Any], width: int
) -> list[tuple[str, str]]:
    """The texts of a device's row, each with its style."""
    name, host = device["name"], device["kind"] == "host"
    busy_key = f"{name}/cpu (%)" if host else f"{name}/utilisation (%)"
    steps = max(1, round(60 / follower.header["interval (s)"]))
    recent = list(follower.history.get(busy_key, ()))[-steps:]
    bits = now.get(f"{name}/throttle reasons (bits)", 0.0)
    status = reasons(int(bits) & THROTTLING) if not math.isnan(bits) else []
    if name in follower.lost:
        status = ["lost"]
    memory = now.get(f"{name}/memory used (MiB)", math.nan)
    total = device.get("memory total (MiB)")
    used = memory_text(memory) if not math.isnan(memory) else "N/A"

    def figure(key: str, unit: str) -> tuple[str, str]:
        value = now.get(key, math.nan)
        return ("N/A", "dim") if math.isnan(value) else (f"{value:.0f}{unit}", "")

    return [
        ("host" if host else name, "bold"),
        (sparkline(recent, width), "bright_black" if host else "blue"),
        figure(busy_key, "%"),
        ("", "") if host else figure(f"{name}/SM activity (%)", "%"),
        (f"{used} / {memory_text(total)}" if total else used, "green"),
        ("", "") if host else figure(f"{name}/power (W)", "W"),
        ("", "") if host else figure(f"{name}/temperature (C)", "°C"),
        (", ".join(status), "yellow"),
    ]


def watch(prefix: Path, *, once: bool = False, refresh: float = 0.5) -> None:
    """Show a trace until it ends or Ctrl-C; ``once`` prints one picture."""
    with required_for("gpumon watch"):
        from rich.console import Console
        from rich.live import Live

    follower = Follower(prefix)
    console = Console()
    if once:
        console.print(render(follower, console.width))
        return
    with Live(render(follower, console.width), console=console, auto_refresh=False) as live:
        try:
            while follower.ended is None:
                time.sleep(refresh)
                follower.poll()
                live.update(render(follower, console.width), refresh=True)
        except KeyboardInterrupt:
            pass
