"""Read and write left_out.csv, the list of images to exclude from a data folder, with reasons.

The file lies beside the label file and has one row per excluded image. `verify --drop-duplicates`
writes this file, and everything that reads the folder's catalog respects it. Remove a row to use
the image again.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from data_prep.errors import DataError
from data_prep.files import MAX_TEXT_BYTES, read_whole, write_whole

LEFT_OUT = "left_out.csv"

HEADER = ["image", "reason"]


def left_out(folder: Path) -> dict[str, str]:
    """The reason by image; empty where the folder has no such file."""
    file = folder / LEFT_OUT
    try:
        text = read_whole(file, MAX_TEXT_BYTES).decode("utf-8-sig")
        header, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        if header != HEADER or any(len(row) != len(HEADER) for row in rows if row):
            raise ValueError("expected the columns image and reason")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(
            f"{file}: cannot be read ({error}); repair it, or remove it to use all images"
        ) from None
    return {row[0]: row[1] for row in rows if row}


def leave_out(folder: Path, reasons: dict[str, str]) -> None:
    """Leave out these images too, each for its reason."""
    if not reasons:
        return
    text = io.StringIO()
    rows = (left_out(folder) | reasons).items()
    csv.writer(text, lineterminator="\n").writerows([HEADER, *rows])
    try:
        write_whole(folder / LEFT_OUT, text.getvalue().encode(), durable=True)
    except OSError as error:
        raise DataError(f"{folder / LEFT_OUT}: cannot be written ({error.strerror})") from None
