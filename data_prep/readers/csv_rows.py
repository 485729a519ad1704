"""Read the rows of a CSV file in blocks, with file and line in every error message."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from data_prep.errors import DataError, did_you_mean
from data_prep.files import MAX_TEXT_BYTES, read_limited

Row = list[str]

#: Rows per block, fewer than the threshold of Python's garbage collector (700). Otherwise the
#: collector would scan all rows again and again, which takes half of the time.
BLOCK = 500

#: The separator is the first of these in the header.
SEPARATORS = ",;\t|"

#: Quoted names and sizes such as [Width,Height], whose commas separate no columns.
ENCLOSED = re.compile(r'"[^"]*"|\[[^]]*\]')

#: A column's name in a pattern, and the number of its first characters to use.
FIELD = re.compile(r"\{([^{}:]+)(?::([0-9]+))?\}")


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


def text_format(data: bytes, default: str = ",") -> tuple[str, str]:
    """Return the encoding, UTF-8 or Excel's UTF-16, and the separator of a CSV."""
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    encoding = "utf-16" if data.startswith(marks) else "utf-8-sig"
    header = io.TextIOWrapper(io.BytesIO(data), encoding, errors="replace", newline="").readline(
        1 << 20
    )
    names = ENCLOSED.sub("", header)
    return encoding, next((text for text in SEPARATORS if text in names), default)


def split_names(header: list[str]) -> list[str]:
    """Return the names of a header that contains commas, quoted or not."""
    return [name.strip() for name in ",".join(header).split(",")] if header else []


class CsvRows:
    """A CSV or .csv.gz: its header, and rows of the same number of columns, without blank lines.

    `split_header` is for a header whose names contain commas without quotes. `columns` are the
    names for a file without a header; spaces may separate its columns.
    """

    def __init__(
        self, file: Path, *, split_header: bool = False, columns: tuple[str, ...] = ()
    ) -> None:
        self.file = file
        self._data = read_csv_bytes(file)
        self._encoding, self._separator = text_format(self._data, " " if columns else ",")
        self.columns = columns
        header = [*columns] or next(self._checked(), [])
        self.header = split_names(header) if split_header else [name.strip() for name in header]
        self._width = len(self.header)
        self._widths = {self._width}
        if split_header and self.header[-1:] == [""]:  # one comma more than in the rows
            self._widths.add(self._width - 1)
        if not self.header:
            raise DataError(f"{file}: empty; expected a header with the names of the columns")

    def blocks(self) -> Iterator[list[Row]]:
        """Yield the rows below the header in blocks."""
        rows = self._checked()
        if not self.columns:
            next(rows)
        before = 0
        while block := list(islice(rows, BLOCK)):
            if not set(map(len, block)) <= self._widths:
                at, row = next((n, r) for n, r in enumerate(block) if len(r) not in self._widths)
                where = self.where(before + at)
                said = "the mapping names" if self.columns else "the header has"
                raise DataError(f"{where}: {len(row)} columns, {said} {self._width}")
            yield block
            before += len(block)

    def where(self, row: int) -> str:
        """Return file and line of a row, counted from 0 below the header; reads the file again."""
        reader = self._reader()
        for _ in islice(filter(None, reader), row + (1 if self.columns else 2)):
            pass
        return f"{self.file}, line {reader.line_num}"

    def column(self, name: str) -> int:
        """Return the index of a column; `DataError`, with the nearest name, if there is none."""
        if self.header[: self._width].count(name) > 1:
            raise DataError(f"{self.file}, line 1: two columns are called '{name}'; rename one")
        if name in self.header:
            return self.header.index(name)
        hint = did_you_mean(name, self.header, f"there are {', '.join(self.header[:30])}")
        raise DataError(f"{self.file}, line 1: no column '{name}'; {hint}")

    def cells(self, names: tuple[str, ...]) -> Callable[[Row], Any]:
        """Return a function that gets the cell of one column, or a tuple of several cells."""
        return itemgetter(*(self.column(name) for name in names))

    def pattern(self, pattern: str) -> Callable[[Row], str]:
        """Return a function that fills a column name or a pattern of columns from a row."""
        if "{" not in pattern:
            return itemgetter(self.column(pattern))
        start, *rest = FIELD.split(pattern)
        pieces = [
            (self.column(name), int(most) if most else None, text)
            for name, most, text in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
        ]
        return lambda row: start + "".join(row[at][:most] + text for at, most, text in pieces)

    def _reader(self) -> Any:
        # Decode while reading: io.StringIO would take four bytes per character.
        text: Iterable[str] = io.TextIOWrapper(io.BytesIO(self._data), self._encoding, newline="")
        if self._separator == " ":  # spaces in the last column belong to it
            text = ("\t".join(line.split(None, len(self.columns) - 1)) for line in text)
        # strict: an unclosed quote would consume the rest of the file without an error.
        return csv.reader(text, strict=True, delimiter=self._separator.replace(" ", "\t"))

    def _checked(self) -> Iterator[Row]:
        reader = self._reader()
        try:
            yield from filter(None, reader)
        except csv.Error as error:
            raise DataError(
                f"{self.file}, line {reader.line_num}: no comma-separated values ({error})"
            ) from None
        except UnicodeDecodeError:
            raise DataError(
                f"{self.file}: not a text file in UTF-8; save it as CSV in UTF-8"
            ) from None
