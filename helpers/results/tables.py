"""Tables whose cells keep their numbers, for the notebook, the page and Markdown.

Text is made last, so that no number has to be parsed from it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from helpers import terminal
from helpers.frameworks import ROWS
from helpers.record.tasks import NONE, Metric
from helpers.results.comparability import flagged
from helpers.results.comparison import devices

ABSENT = "-"
"""There is no such value; ``NONE``: there is one, but it could not be computed."""
IN_MINUTES = 120.0
"""Seconds above which a training time is shown in minutes."""
IN_SECONDS = 600.0
"""Seconds up to which a column of times is shown in seconds."""
LONG = 30
"""The number of letters from which a cell may wrap."""


@dataclass(frozen=True)
class Cell:
    """A number or a text, with the ends of its interval; ``form`` formats the number.

    note: what follows the interval in the brackets. tone: ``good``, ``bad`` or ``other``. missing:
    what is shown if there is no value. links: files that the page links to, by their texts.
    """

    value: float | str | None
    form: Callable[[float], str] = str
    low: float | None = None
    high: float | None = None
    note: str = ""
    tone: str = ""
    missing: str = NONE
    links: tuple[tuple[str, Path], ...] = ()

    @property
    def text(self) -> str:
        """``0.757``, ``75.7 %``: the value alone."""
        if isinstance(self.value, str):
            return self.value
        return self.missing if _unknown(self.value) else self.form(self.value)  # type: ignore[arg-type]

    @property
    def spread(self) -> str:
        """The text in brackets: ``0.731 to 0.781 over 3 runs``."""
        if _unknown(self.value):
            return ""
        ends = [] if _unknown(self.low) or _unknown(self.high) else [self.low, self.high]
        texts = [self.form(end) for end in ends]  # type: ignore[arg-type]
        if set(texts) == {self.text}:
            texts = []
        # A unit that stands before the bracket already does not stand in it.
        bare = [re.sub(" (%|s|points)$", "", text) for text in texts]
        return " ".join(filter(None, [" to ".join(bare), self.note]))

    @property
    def css(self) -> str:
        """The CSS class of the cell, without its column's alignment."""
        return self.tone or ("long" if self.number is None and len(self.text) > LONG else "")

    @property
    def number(self) -> float | None:
        """The number by which a reader can sort the page's table; None for texts."""
        return None if isinstance(self.value, str) or _unknown(self.value) else self.value

    def __str__(self) -> str:
        return f"{self.text} ({self.spread})" if self.spread else self.text


def _unknown(value: float | str | None) -> bool:
    return value is None or value != value


class Name(NamedTuple):
    """The heading of a row; flags: why a run's times are not comparable."""

    text: str
    flags: tuple[str, ...] = ()

    def __str__(self) -> str:
        return flagged(self.text, self.flags)


def family_of(label: str) -> str | None:
    """The framework with which a label or a run's name begins; None if it is not known here."""
    return next((row.family for row in ROWS if label.startswith(row.family)), None)


def of_row(row: Mapping[str, Any], most: int | None = None) -> Name:
    """The heading of a row with a label, devices and flags: ``Keras, 2 devices``.

    On the ``most`` devices, which the table's corner names, it is just ``Keras``.
    """
    text = row["label"] if row["devices"] == most else f"{row['label']}, {devices(row['devices'])}"
    return Name(text, tuple(row["flags"]))


def on(most: int) -> str:
    """The corner of a table whose rows have this number of devices unless they name another."""
    return f"on {devices(most)}"


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns.

    kind: the CSS class; ``all`` is that of the table that can be filtered. folded: only its title
    is shown at first. first: how many rows are shown at first; 0: all. drawn: the columns whose
    values the page also draws, with their ranges.
    """

    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Name, tuple[Cell, ...]], ...]
    note: str = ""
    kind: str = "plain"
    folded: bool = False
    first: int = 0
    drawn: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.rows or not self.columns

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers, to be aligned on the right."""
        columns = zip(*(cells for _, cells in self.rows), strict=True)
        return [any(cell.number is not None for cell in cells) for cells in columns]

    @property
    def frame(self) -> pd.DataFrame:
        """The table as text, for a notebook."""
        index = pd.Index([str(name) for name, _ in self.rows], name=self.corner, dtype=object)
        cells = [[str(cell) for cell in cells] for _, cells in self.rows]
        return pd.DataFrame(cells, index, pd.Index(self.columns, dtype=object), dtype=object)

    def _repr_html_(self) -> str:
        return self.frame.to_html(notebook=True)

    def places(self, column: int, cell: Cell) -> tuple[float, float, float] | None:
        """The minimum, value and maximum of a drawn cell, in percent of the column's largest."""
        if self.columns[column] not in self.drawn or cell.number is None:
            return None
        each = [cells[column] for _, cells in self.rows]
        known = [end for one in each for end in (one.value, one.high) if isinstance(end, float)]
        most = max(end for end in known if not _unknown(end))
        low, high = (
            cell.number if end is None or _unknown(end) else end for end in (cell.low, cell.high)
        )
        return 100 * low / most, 100 * cell.number / most, 100 * high / most


Row = Mapping[str, Any]
"""The cell, or text, for each column."""


def table(title: str, corner: str, rows: Iterable[tuple[Name | str, Row]], **more: Any) -> Table:
    """A table of rows, each with its heading; a missing cell is shown as ``-``.

    Columns are in the order in which the rows first have them. Columns with ``-`` in every row are
    left out. ``more`` are the table's other fields.
    """
    found = list(rows)
    every = dict.fromkeys(head for _, row in found for head in row)
    heads = [
        head for head in every if any(str(row.get(head, ABSENT)) != ABSENT for _, row in found)
    ]
    cells = ([row.get(head, ABSENT) for head in heads] for _, row in found)
    whole = [
        tuple(value if isinstance(value, Cell) else Cell(value) for value in row) for row in cells
    ]
    names = [name if isinstance(name, Name) else Name(name) for name, _ in found]
    return Table(title, corner, tuple(heads), tuple(zip(names, whole, strict=True)), **more)


def ranged(
    row: Mapping[str, Any],
    column: str,
    form: Callable[[float], str],
    divisor: float = 1.0,
    *,
    note: str = "",
    missing: str = NONE,
) -> Cell:
    """A value of a row with its ``_low`` and ``_high``; a single run without a range has none."""
    value, low, high = (row[f"{column}{end}"] for end in ("", "_low", "_high"))
    if _unknown(value):
        return Cell(None, missing=missing)
    if row["runs"] == 1 and not low < high:
        return Cell(value / divisor, form, note=note)
    return Cell(value / divisor, form, low / divisor, high / divisor, note)


def of_metric(row: Mapping[str, Any], metric: Metric) -> Cell:
    """The test's metric of a row of ``repeated_runs.summarise``, with its uncertainty.

    One run has the 95 % interval over patients; several have their median and range.
    """
    if row["runs"] == 1:
        low, high = (row[end] for end in metric.ends)
        return Cell(row[metric.column], metric.text, low, high)
    return ranged(row, metric.column, metric.text)


def share(value: float) -> str:
    """``87 %``, from a fraction."""
    return f"{round(100 * value)} %"  # round() knows no minus zero


def time_column(seconds: Iterable[float]) -> tuple[str, Callable[[float], str]]:
    """The unit of a column of times, and the format of its cells: seconds, or ``min:s``."""
    most = max((value for value in seconds if not _unknown(value)), default=0.0)
    if most < IN_SECONDS:
        return "s", short_number
    return "min:s" if most < 3600 else "h:min:s", terminal.clock


def time_text(seconds: float) -> str:
    """A training time, ``37.8 s``; from two minutes on as on a clock, ``2:06``."""
    return terminal.clock(seconds) if seconds >= IN_MINUTES else f"{short_number(seconds)} s"


def short_number(value: float) -> str:
    """Three significant digits: 1,234, 12.3, -1.23; a value that rounds to zero has no sign."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:z.2f}"
