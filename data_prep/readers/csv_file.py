"""Read a CSV file with pandas, with file and line in every error message."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import warnings
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pandas as pd

from data_prep.errors import DataError, did_you_mean
from data_prep.files import MAX_TEXT_BYTES, read_limited

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
        raise DataError(f"{file}: cannot be read ({error}); download it again") from None


def text_format(data: bytes) -> tuple[str, str]:
    """Return the encoding, UTF-8 or Excel's UTF-16, and the separator of a CSV."""
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    encoding = "utf-16" if data.startswith(marks) else "utf-8-sig"
    text = io.TextIOWrapper(io.BytesIO(data), encoding, errors="replace", newline="")
    names = ENCLOSED.sub("", text.readline(1 << 20))
    return encoding, next((sign for sign in SEPARATORS if sign in names), ",")


def split_names(header: list[str]) -> list[str]:
    """Return the names of a header that contains commas, quoted or not."""
    return [name.strip() for name in ",".join(header).split(",")] if header else []


class CsvFile:
    """A CSV or .csv.gz: its header (`split_header`: with commas in names), and a table of texts."""

    def __init__(self, file: Path, *, split_header: bool = False) -> None:
        self.file = file
        self._data = read_csv_bytes(file)
        self.encoding, self.separator = text_format(self._data)
        try:
            _, header = next(self._lines(), (0, []))
            self.header = split_names(header) if split_header else [name.strip() for name in header]
            if not self.header:
                raise DataError(f"{file}: empty; expected a header with the names of the columns")
            self.table = self._read()
        except UnicodeError:
            raise DataError(f"{file}: not a text file in UTF-8; save it as CSV in UTF-8") from None
        except (ValueError, pd.errors.ParserWarning) as error:
            self._check_widths()
            raise DataError(f"{file}: not comma-separated values ({error})") from None
        if (self.table.iloc[:, -1] == "").any():  # pandas fills short rows in silence
            self._check_widths()

    def _read(self) -> pd.DataFrame:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            whole: pd.DataFrame = pd.read_csv(
                self._text(),
                sep=self.separator,
                header=None,
                names=range(len(self.header)),
                index_col=False,
                dtype=object,
                na_filter=False,
            )
        return whole.iloc[1:].reset_index(drop=True)  # without the header

    def column(self, name: str) -> pd.Series:
        """Return the texts of a column; `DataError`, with the nearest name, if there is none."""
        if self.header.count(name) > 1:
            raise DataError(f"{self.file}, line 1: two columns are called '{name}'; rename one")
        if name in self.header:
            return self.table[self.header.index(name)]
        hint = did_you_mean(name, self.header, f"there are {', '.join(self.header[:30])}")
        raise DataError(f"{self.file}, line 1: no column '{name}'; {hint}")

    def pattern(self, pattern: str) -> pd.Series:
        """Return the texts of a column, or of a pattern of columns such as `{id:2}/{id}.png`."""
        if "{" not in pattern:
            return self.column(pattern)
        start, *rest = FIELD.split(pattern)
        texts = pd.Series(start, index=self.table.index, dtype=object)
        for name, most, text in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            column = self.column(name)
            texts = texts + (column.str[: int(most)] if most else column) + text
        return texts

    def where(self, row: int) -> str:
        """Return file and line of a row, counted from 0 below the header; reads the file again."""
        line, _ = next(islice(self._lines(), row + 1, None), ("unknown", []))
        return f"{self.file}, line {line}"

    def refuse(self, column: str, bad: pd.Series, problem: str, texts: pd.Series) -> None:
        """Raise `DataError` with line, column and problem for the first text of a true `bad`."""
        if bad.any():
            at = int(bad.to_numpy().argmax())
            raise DataError(f"{self.where(at)}, column '{column}': {texts.iloc[at]!r} {problem}")

    def _text(self) -> io.TextIOWrapper:
        # Decode while reading: io.StringIO would take four bytes per character.
        return io.TextIOWrapper(io.BytesIO(self._data), self.encoding, newline="")

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of its last line, and the cells, of each row that is not blank."""
        # strict: an unclosed quote would consume the rest of the file without an error.
        reader = csv.reader(self._text(), strict=True, delimiter=self.separator)
        try:
            for row in reader:
                if len(row) > 1 or (row and row[0].strip(" \t")):
                    yield reader.line_num, row
        except csv.Error as error:
            where = f"{self.file}, line {reader.line_num}"
            raise DataError(f"{where}: not comma-separated values ({error})") from None

    def _check_widths(self) -> None:
        """Raise `DataError` for a row that has not a cell for each name of the header."""
        widths = {len(self.header), len(self.header) - (self.header[-1] == "")}
        for line, row in islice(self._lines(), 1, None):
            if len(row) not in widths:
                where = f"{self.file}, line {line}"
                raise DataError(f"{where}: {len(row)} columns, the header has {len(self.header)}")
