"""This module writes rows of figures as CSV, or as text for a terminal."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from typing import IO, Any

from gpumon.compat import zip_strict
from gpumon.errors import printable

Row = dict[str, Any]
"""Values by the name of their column; what is not known is NaN, None or not there."""


def write_csv(out: IO[str], columns: Sequence[str], rows: Sequence[Row]) -> None:
    table = csv.writer(out, lineterminator="\n")
    table.writerow(columns)
    for row in rows:
        table.writerow("" if _unknown(row.get(key)) else row[key] for key in columns)


def text(columns: Sequence[str], rows: Sequence[Row]) -> str:
    """The rows for a terminal, without the columns in which nothing is known."""
    shown = [key for key in columns if not all(_unknown(row.get(key)) for row in rows)]
    lines = [shown, *([_figure(row.get(key)) for key in shown] for row in rows)]
    widths = [max(map(len, column)) for column in zip_strict(*lines)]
    return "\n".join(
        "  ".join(word.rjust(width) for word, width in zip_strict(line, widths)) for line in lines
    )


def _unknown(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _figure(value: object) -> str:
    if _unknown(value):
        return ""
    if not isinstance(value, float):
        return printable(value)
    return (
        f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if value >= 1 else f"{value:.3g}"
    )
