"""Colours and sizes of the charts: two themes, safe for colour-blind readers.

The series colours are Okabe and Ito's ("Color Universal Design", 2008), brightened for the dark
theme; the phase tints are Paul Tol's "light" scheme. No meaning rests on colour alone: areas are
filled, lines differ in dash, and bands carry their names.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpumon.errors import MonitorError


@dataclass(frozen=True)
class Theme:
    background: str
    lane: str
    text: str
    faint: str
    grid: str
    busy: str
    activity: str
    memory: str
    power: str
    host: str
    phases: tuple[str, ...]
    phase_text: str
    tint: float


PHASES = (
    "#77AADD",
    "#EE8866",
    "#EEDD88",
    "#44BB99",
    "#FFAABB",
    "#99DDFF",
    "#BBCC33",
    "#DDDDDD",
)

THEMES = {
    "light": Theme(
        background="#FFFFFF",
        lane="#FAFAFA",
        text="#1F2328",
        faint="#656D76",
        grid="#E3E6EA",
        busy="#0072B2",
        activity="#D55E00",
        memory="#007F5C",
        power="#A8457F",
        host="#5B6B7B",
        phases=PHASES,
        phase_text="#1F2328",
        tint=0.16,
    ),
    "dark": Theme(
        background="#0D1117",
        lane="#131A22",
        text="#E6EDF3",
        faint="#9AA4AF",
        grid="#2A323C",
        busy="#4FB3F0",
        activity="#FF9A4D",
        memory="#2FD3A0",
        power="#EE9CCB",
        host="#9FB3C8",
        phases=PHASES,
        phase_text="#11161C",
        tint=0.13,
    ),
}


def theme(name: str) -> Theme:
    if name not in THEMES:
        raise MonitorError(f"theme={name!r}: choose one of {', '.join(THEMES)}")
    return THEMES[name]


def clock(seconds: float, span: float) -> str:
    """A moment on the time axis, as long as the span asks: ``12 s``, ``3:05``, ``1:02:30``."""
    if span <= 120:
        return f"{seconds:g} s"
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if span > 3600 else f"{minutes}:{left:02d}"


def mebibytes(amount: float) -> str:
    """Memory for people: ``812 MiB``, ``12.3 GiB``, ``141 GiB``."""
    if amount < 1000:
        return f"{amount:.0f} MiB"
    gib = amount / 1024
    return f"{gib:.1f} GiB" if gib < 100 else f"{gib:.0f} GiB"
