"""``gpumon watch`` shows the latest values of a trace in the terminal."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpumon.errors import required_for
from gpumon.live_reader import Follower
from gpumon.throttle import THROTTLING, reasons
from gpumon.units import duration_text, memory_text, time_text

with required_for("gpumon watch"):
    from rich.console import Console, Group, RenderableType
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

BLOCKS = " ▁▂▃▄▅▆▇█"
# What the columns beside the last minute need.
OTHERS = 66


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
    width = min(60, max(8, columns - OTHERS))
    header = follower.header
    silent = follower.seconds_silent(time.time())
    # What was last heard is not what is now.
    now = {} if silent else follower.now
    table = Table(box=None, padding=(0, 1), header_style="dim", expand=False)
    for name, justify in (
        ("device", "left"),
        ("last minute", "left"),
        ("busy", "right"),
        ("SM", "right"),
        ("memory", "right"),
        ("power", "right"),
        ("temp", "right"),
        ("", "left"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for device in header["devices"]:
        table.add_row(*_row(follower, now, device, width))
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
) -> list[RenderableType]:
    name = device["name"]
    host = device["kind"] == "host"
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
    return [
        Text("host" if host else name, style="bold"),
        Text(sparkline(recent, width), style="bright_black" if host else "blue"),
        _figure(now.get(busy_key), "%"),
        Text("") if host else _figure(now.get(f"{name}/SM activity (%)"), "%"),
        Text(f"{used} / {memory_text(total)}" if total else used, style="green"),
        Text("") if host else _figure(now.get(f"{name}/power (W)"), "W"),
        Text("") if host else _figure(now.get(f"{name}/temperature (C)"), "°C"),
        Text(", ".join(status), style="yellow"),
    ]


def _figure(value: float | None, unit: str) -> Text:
    if value is None or math.isnan(value):
        return Text("N/A", style="dim")
    return Text(f"{value:.0f}{unit}")


def watch(prefix: Path, *, once: bool = False, refresh: float = 0.5) -> None:
    """Show a trace until it ends or Ctrl-C; ``once`` prints one picture."""
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
