"""Define the parts of a report's sections: charts, tables and sentences."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pandas as pd
from matplotlib.figure import Figure

Draw = Callable[..., Figure | None]


@dataclass(frozen=True)
class Table:
    """``frame`` holds text only. ``kind`` is a hint to the page: plain; wide, of many columns;
    verdicts and runs, whose columns are runs or frameworks; measured and published, which are
    shown next to each other."""

    name: str
    title: str
    frame: pd.DataFrame
    note: str = ""
    kind: str = "plain"


@dataclass(frozen=True)
class Chart:
    """A figure that ``draw(compared, width=inches)`` makes; ``alt`` says what it shows."""

    name: str
    title: str
    draw: Draw
    alt: str
    note: str = ""


@dataclass(frozen=True)
class Texts:
    """Sentences, one a line."""

    title: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Live:
    """A part that the page makes interactive: ``utilisation`` or ``target``."""

    name: str
    title: str
    note: str = ""


Block = Table | Chart | Texts | Live


@dataclass(frozen=True)
class Section:
    name: str
    title: str
    lead: str
    blocks: list[Block] = field(default_factory=list)
    data: tuple[str, ...] = ()
    """Names of the CSV files that hold this section's numbers."""


def joined(*sentences: str | None) -> str:
    """One paragraph of those sentences that there are."""
    return " ".join(filter(None, sentences))
