"""This module defines the charts' colours and sizes: two themes, safe for colour blindness.

Series have the colours of Okabe and Ito ("Color Universal Design", 2008), phases those of Paul
Tol's "pale" and "dark" schemes. No meaning rests on colour alone.
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
    machine: str
    phases: tuple[str, ...]
    phase_text: str
    tint: float


@dataclass(frozen=True)
class Look:
    """How a kind of line is drawn: ``dash`` has the lengths of strokes and gaps."""

    colour: str
    area: bool = False
    dash: tuple[float, ...] = ()


KINDS = {
    "busy": Look("busy", area=True),
    "activity": Look("activity"),
    "host": Look("host", area=True),
    "machine": Look("machine", dash=(2, 2)),
    "memory": Look("memory"),
    "machine_memory": Look("memory", dash=(2, 2)),
    "power": Look("power", dash=(4, 1.5)),
    "first": Look("busy"),
    "second": Look("activity", dash=(4, 1.5)),
    "third": Look("memory", dash=(2, 2)),
    "fourth": Look("power", dash=(6, 2, 1.5, 2)),
}
"""Every kind of line, in the legend's order."""

# The first three are kept for the phases every training run has, so that charts of several runs
# agree; other names take the rest in the order in which they appear. A run of the notebooks has
# nine phases at most; no two of these colours are nearer to each other than 11 in CIELAB.
USUAL = ("train", "validate", "test")
PALE = (
    *("#D5DBE3", "#EEE8AA", "#CCDDAA", "#FFCCCC", "#CCEEFF", "#DDCCEE", "#F3D9B1"),
    *("#A8DED0", "#E8B4D6", "#BFB8A0"),
)
DEEP = (
    *("#3D4754", "#6B6424", "#2B6A33", "#713A3A", "#22606B", "#54407A", "#75512A"),
    *("#0F5F50", "#7D2F63", "#5A5A5A"),
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
        machine="#8A6A1F",
        phases=PALE,
        phase_text="#1F2328",
        tint=0.38,
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
        machine="#D9B45B",
        phases=DEEP,
        phase_text="#F2F5F8",
        tint=0.32,
    ),
}


def theme(name: str) -> Theme:
    if name not in THEMES:
        raise MonitorError(f"theme={name!r}: choose one of {', '.join(THEMES)}")
    return THEMES[name]


def colour_of(kind: str, colours: Theme) -> str:
    """The colour of a kind of line."""
    return str(getattr(colours, KINDS[kind].colour))


def phase_colours(names: list[str], colours: Theme) -> dict[str, str]:
    """A colour for each phase; repeated only if there are more names than colours."""
    palette = colours.phases
    others = [name for name in names if name not in USUAL]
    rest = palette[len(USUAL) :]
    found = {name: palette[USUAL.index(name)] for name in names if name in USUAL}
    return found | {name: rest[number % len(rest)] for number, name in enumerate(others)}
