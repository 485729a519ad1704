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
from data_prep.files import MAX_TEXT_BYTES, read_limited, write_atomic

EXCLUDED_FILE = "left_out.csv"

HEADER = ["image", "reason"]


def read_excluded(folder: Path) -> dict[str, str]:
    """Return the reason for each excluded image; empty if the folder has no such file."""
    file = folder / EXCLUDED_FILE
    try:
        text = read_limited(file, MAX_TEXT_BYTES).decode("utf-8-sig")
        header, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        if header != HEADER or any(len(row) != len(HEADER) for row in rows if row):
            raise ValueError("expected the columns image and reason")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, csv.Error) as error:
        raise DataError(
            f"{file}: cannot be read ({error}); fix the file, or remove it to use all images"
        ) from None
    return {row[0]: row[1] for row in rows if row}


def exclude_images(folder: Path, reasons: dict[str, str]) -> None:
    """Add these images, each with a reason, to the folder's list of excluded images."""
    if not reasons:
        return
    text = io.StringIO()
    rows = (read_excluded(folder) | reasons).items()
    csv.writer(text, lineterminator="\n").writerows([HEADER, *rows])
    try:
        write_atomic(folder / EXCLUDED_FILE, text.getvalue().encode(), durable=True)
    except OSError as error:
        raise DataError(f"{folder / EXCLUDED_FILE}: cannot be written ({error.strerror})") from None
