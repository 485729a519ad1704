"""Convert the label cells of a table to classes or findings; equal cells are parsed once."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from data_prep.catalog import MISSING, UNCERTAIN
from data_prep.errors import DataError, did_you_mean
from data_prep.readers.column_mapping import ColumnMapping

#: One name in a list in Python's notation, and the separator after the name.
ITEM = re.compile(r"""\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*(,|$)""")


class TableLabels:
    """The distinct cells read so far (`known`) and the labels of each."""

    def __init__(
        self, given: ColumnMapping, advice: str = 'or set handle_unknown = "ignore"'
    ) -> None:
        """`advice` ends the error of a finding that is unlike all known findings."""
        self.given, self.advice = given, advice
        self.known: dict[Any, int] = {}
        self.patterns: list[Any] = []
        self.is_class = given.class_ is not None
        column = given.class_ or given.labels
        self.columns: tuple[str, ...] = given.findings if column is None else (column,)
        self.codes = {
            **dict.fromkeys(given.positive, 1),
            **dict.fromkeys(given.negative, 0),
            **dict.fromkeys(given.uncertain, UNCERTAIN),
            **dict.fromkeys(given.missing, MISSING),
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Return the classes in the mapping's order, else sorted; or the findings."""
        if not self.is_class:
            return self.given.findings
        return self.given.classes or tuple(sorted(set(self.patterns)))

    def values(self, kinds: list[int]) -> np.ndarray:
        """Return the labels of rows with these distinct cells, in the form of a catalogue."""
        if self.is_class:
            place = {name: at for at, name in enumerate(self.names)}
            table = np.array([place[name] for name in self.patterns], dtype=np.int64)
        else:
            table = np.array(self.patterns, dtype=np.int8)
        return np.asarray(table[np.array(kinds, dtype=np.int64)])

    def kinds(self, cells: list[Any], where: Callable[[int, str], str]) -> list[int]:
        """Return the number of the distinct cells of each row: a text, or a tuple of several texts.

        `where` gives the location of a row and a column, for errors.
        """
        if set(cells) - self.known.keys():
            for at, some in enumerate(cells):
                if some not in self.known:
                    self.known[some] = self._add(some, partial(where, at))
        return [self.known[some] for some in cells]

    def _add(self, cells: Any, where: Callable[[str], str]) -> int:
        texts = (cells,) if len(self.columns) == 1 else cells
        if self.is_class:
            pattern: Any = self._class(texts[0], where)
        elif self.given.labels:
            pattern = self._names(texts[0], where)
        else:
            pattern = [
                self._code(text, column, where)
                for text, column in zip(texts, self.columns, strict=True)
            ]
        self.patterns.append(pattern)
        return len(self.patterns) - 1

    def _class(self, cell: str, where: Callable[[str], str]) -> str:
        if pattern := self.given.class_pattern:
            found = re.search(pattern, cell)
            if found is None or not found[0]:
                raise DataError(
                    f"{where(self.columns[0])}: no '{pattern}' in {cell!r}; fix class_pattern"
                )
            cell = found[0]
        name = cell if cell in self.given.classes else cell.strip()
        if not name or (self.given.classes and name not in self.given.classes):
            raise DataError(
                f"{where(self.columns[0])}: {cell!r} is not one of the classes;"
                " fix the cell, or the mapping's classes"
            )
        return name

    def _code(self, cell: str, column: str, where: Callable[[str], str]) -> int:
        text = cell.strip()
        code = self.codes.get(text, self.codes.get(text.replace(",", ".")))  # a decimal comma
        if code is None:
            raise DataError(
                f"{where(column)}: {cell!r} is none of {', '.join(filter(None, self.codes))};"
                " add it to the mapping"
            )
        return code

    def _names(self, cell: str, where: Callable[[str], str]) -> list[int]:
        given = self.given
        if cell.strip() in given.missing:
            return [MISSING] * len(given.findings)
        names = {name for name in self._split(cell, where) if name}
        for name in names - set(given.findings) - set(given.no_finding):
            if given.handle_unknown == "ignore":
                continue
            hint = did_you_mean(name, given.findings, self.advice)
            raise DataError(
                f"{where(self.columns[0])}: {name!r} is not one of the findings; {hint}"
            )
        if names & set(given.no_finding) and names & set(given.findings):
            raise DataError(
                f"{where(self.columns[0])}: {min(names & set(given.no_finding))!r} beside a"
                " finding; fix the row"
            )
        return [int(finding in names) for finding in given.findings]

    def _split(self, cell: str, where: Callable[[str], str]) -> list[str]:
        """Return the names in a cell; a list in Python's notation is parsed, never executed."""
        if self.given.label_format == "separated":
            return [name.strip() for name in cell.split(self.given.separator)]
        inner = cell.strip()
        names, at, more = [], 1, ","
        if inner.startswith("[") and inner.endswith("]") and len(inner) > 1:
            inner = inner[:-1]
            while inner[at:].strip() and more:
                found = ITEM.match(inner, at)
                if found is None:
                    break
                names.append((found[1] if found[1] is not None else found[2]).strip())
                at, more = found.end(), found[3]
            if not inner[at:].strip():
                return names
        raise DataError(f"{where(self.columns[0])}: {cell!r} is not a list of names in quotes")
