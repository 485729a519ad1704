"""Tables whose cells keep their figures, for the notebook, the page and Markdown alike.

Text is made last, so that nothing has to be read out of it again.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import terminal
from helpers.frameworks import ROWS
from helpers.record.tasks import NONE, Metric
from helpers.results.comparability import marked
from helpers.results.comparison import Entry, devices

ABSENT = "-"
"""There is no such figure; ``NONE``: there is one, and it could not be computed."""
IN_MINUTES = 120.0
"""Seconds above which a training time is shown in minutes."""
IN_SECONDS = 600.0
"""Seconds up to which a column of times is shown in seconds."""
LONG = 30
"""Letters of a cell that may fold."""


@dataclass(frozen=True)
class Cell:
    """A figure or a text, with the ends of its interval; ``form`` makes a figure's text.

    note: what the brackets hold behind the interval. tone: ``good``, ``bad`` or ``other``.
    missing: what is shown without a value. links: files that the page links to, by their texts.
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
        """``0.731 to 0.781 over 3 runs``: what stands in brackets."""
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
        """The class of the page's cell, apart from its column's alignment."""
        return self.tone or ("long" if self.number is None and len(self.text) > LONG else "")

    @property
    def number(self) -> float | None:
        """What the page's reader sorts by; None of texts."""
        return None if isinstance(self.value, str) or _unknown(self.value) else self.value

    def __str__(self) -> str:
        return f"{self.text} ({self.spread})" if self.spread else self.text


def _unknown(value: float | str | None) -> bool:
    return value is None or value != value


@dataclass(frozen=True)
class Name:
    """What heads a row or a column.

    marks: why a run's times are not comparable. framework, devices: those of the one run that it
    names, by which a reader of the page can choose. above: a heading that columns share.
    """

    text: str
    marks: tuple[str, ...] = ()
    framework: str = ""
    devices: int | None = None
    above: str = ""

    def __str__(self) -> str:
        return marked(f"{self.above} {self.text}".strip(), self.marks)


def family_of(label: str) -> str | None:
    """The framework that a label, or a run's name, begins with; None of one not known here."""
    return next((row.family for row in ROWS if label.startswith(row.family)), None)


def of_label(label: str, marks: Iterable[str] = ()) -> Name:
    """The heading of all of a label's runs."""
    return Name(label, tuple(marks), family_of(label) or "")


def of_run(entry: Entry, *, timed: bool = True) -> Name:
    """A run's heading; with its marks where its times are shown."""
    marks = entry.marks if timed else ()
    return Name(entry.run, marks, family_of(entry.label) or "", entry.devices)


def of_row(row: Mapping[str, Any], more: str = "") -> Name:
    """The heading of a row with a label, devices and marks: ``Keras, 2 devices``."""
    text = f"{row['label']}, {devices(row['devices'])}{more}"
    return Name(text, tuple(row["marks"]), family_of(row["label"]) or "", int(row["devices"]))


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns. ``kind`` is a hint to the page.

    plain; wide, of many columns; runs, whose columns are runs; all, of all runs; published, which
    are shown next to each other. folded: only its title is shown at first.
    """

    title: str
    corner: str
    columns: tuple[Name, ...]
    rows: tuple[tuple[Name, tuple[Cell, ...]], ...]
    note: str = ""
    kind: str = "plain"
    folded: bool = False

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
        heads = [(c.above, c.text) if self.above else str(c) for c in self.columns]
        columns = pd.MultiIndex.from_tuples(heads) if self.above else pd.Index(heads, dtype=object)
        index = pd.Index([str(name) for name, _ in self.rows], name=self.corner, dtype=object)
        cells = [[str(cell) for cell in cells] for _, cells in self.rows]
        return pd.DataFrame(cells, index, columns, dtype=object)

    def _repr_html_(self) -> str:
        return self.frame.to_html(notebook=True)

    def __repr__(self) -> str:
        return self.frame.to_string()

    @property
    def above(self) -> list[tuple[str, int]]:
        """The headings that columns share, and how many do; nothing where none does."""
        found = groupby(column.above for column in self.columns)
        return [(text, len(list(columns))) for text, columns in found if text]

    def without_uniform(self, *names: str) -> "Table":
        """Without those of these columns that say the same in every row; the note says it once.

        One that says nothing in any row is left out without a word.
        """
        kept, note = [], self.note
        for place, column in enumerate(self.columns):
            texts = {str(cells[place]) for _, cells in self.rows}
            uniform = column.text in names and len(texts) == 1
            if not uniform or (len(self.rows) == 1 and texts != {ABSENT}):
                kept.append(place)
            elif texts != {ABSENT}:
                note = f'{note} In every row, {column.text} is "{texts.pop()}".'.strip()
        return replace(self._columns(kept), note=note)

    def _columns(self, places: Sequence[int]) -> "Table":
        columns = tuple(self.columns[place] for place in places)
        rows = tuple((name, tuple(cells[p] for p in places)) for name, cells in self.rows)
        return replace(self, columns=columns, rows=rows)

    def parts(self, fit: int) -> list["Table"]:
        """The table in parts of no more columns than ``fit``, those of one heading together."""
        heads = list(dict.fromkeys(column.above or str(column) for column in self.columns))
        count = -(-len(heads) // max(1, fit * len(heads) // len(self.columns)))
        found = []
        for i in range(count):
            chunk = heads[len(heads) * i // count : len(heads) * (i + 1) // count]
            kept = [k for k, c in enumerate(self.columns) if (c.above or str(c)) in chunk]
            found.append(self._columns(kept))
        return found


Head = Name | str
Row = Mapping[Any, Any]
"""By column its cell, or text."""


def table(
    title: str,
    corner: str,
    rows: Iterable[tuple[Head, Row]],
    *,
    columns: Iterable[Head] | None = None,
    note: str = "",
    kind: str = "plain",
) -> Table:
    """A table of rows, each with its heading; a row's cell that is not there is shown as ``-``.

    Args:
        columns: their order; by default that in which the rows first have them, so that a column
            which the first row lacks comes last.
    """
    found = list(rows)
    heads = list(columns or dict.fromkeys(head for _, row in found for head in row))
    gap = Cell(ABSENT)
    named = [
        (_name(name), tuple(_cell(row.get(head, gap)) for head in heads)) for name, row in found
    ]
    return Table(title, corner, tuple(map(_name, heads)), tuple(named), note, kind)


def transposed(columns: Mapping[Head, Row]) -> list[tuple[Head, Row]]:
    """The rows for :func:`table` of columns."""
    names = dict.fromkeys(name for column in columns.values() for name in column)
    return [
        (name, {head: column[name] for head, column in columns.items() if name in column})
        for name in names
    ]


def _name(head: Head) -> Name:
    return head if isinstance(head, Name) else Name(head)


def _cell(value: Cell | str) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)


def ranged(
    row: Mapping[str, Any],
    figure: str,
    form: Callable[[float], str],
    divisor: float = 1.0,
    *,
    note: str = "",
    missing: str = NONE,
) -> Cell:
    """A figure of a row with its ``_low`` and ``_high``; one run without a range has none."""
    value, low, high = (row[f"{figure}{end}"] for end in ("", "_low", "_high"))
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
        return Cell(row[metric.figure], metric.text, low, high)
    return ranged(row, metric.figure, metric.text, note=f"over {row['runs']} runs")


def share(value: float) -> str:
    """``87 %``, of a share of 1."""
    return f"{round(100 * value)} %"  # round() knows no minus zero


def time_column(seconds: Iterable[float]) -> tuple[str, Callable[[float], str]]:
    """The unit of a column of times, and the form of its cells: seconds, or as on a clock."""
    most = max((value for value in seconds if not _unknown(value)), default=0.0)
    if most < IN_SECONDS:
        return "s", short_number
    return "min:s" if most < 3600 else "h:min:s", terminal.clock


def time_text(seconds: float) -> str:
    """A training time, ``37.8 s``; from two minutes on as on a clock, ``2:06``."""
    return terminal.clock(seconds) if seconds >= IN_MINUTES else f"{short_number(seconds)} s"


def short_number(value: float) -> str:
    """Three digits that count: 1,234, 12.3, -1.23; what rounds to nothing has no sign."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:z.2f}"
