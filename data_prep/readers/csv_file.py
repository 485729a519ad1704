"""Read a plain or gzipped CSV file with a limit on its size."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

from data_prep.errors import DataError
from data_prep.files import MAX_TEXT_BYTES, read_limited


def read_csv_bytes(file: Path) -> bytes:
    """Return the bytes of a .csv or .csv.gz; `DataError` if it is missing or damaged."""
    try:
        data = read_limited(file, MAX_TEXT_BYTES)
        if file.suffix == ".gz":
            with gzip.open(io.BytesIO(data)) as packed:
                data = packed.read(MAX_TEXT_BYTES + 1)
            if len(data) > MAX_TEXT_BYTES:
                raise DataError(f"{file}: unpacks to more than the {MAX_TEXT_BYTES:,} bytes read")
        return data
    except FileNotFoundError:
        raise DataError(f"{file}: the label file is missing") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{file}: cannot be read ({error}); download the label file again"
        ) from None
