"""Read and check a column mapping, `table.toml`, which says what the columns of a CSV mean.

The mapping may also be a dictionary with the same keys, which docs/your-images.md explains.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from data_prep.errors import DataError, did_you_mean
from data_prep.files import MAX_TEXT_BYTES, read_limited
from data_prep.readers.path_safety import UNSAFE_PATH
from data_prep.split import PARTS

MAPPING_FILE = "table.toml"

Text = Annotated[str, msgspec.Meta(min_length=1)]
Texts = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


ByPart = Annotated[dict[Literal["train", "valid", "test"], Text], msgspec.Meta(min_length=1)]


class Join(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A second file, and the columns that both files have."""

    file: str
    on: Texts


class ColumnMapping(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"class_": "class"}
):
    """A mapping with the keys of the file; ValueError, with key and fix, if they do not fit."""

    file: str | ByPart
    path: Text | ByPart
    remove_prefix: Text | None = None
    name: Text | None = None
    group: Text | None = None
    group_pattern: Text | None = None
    split: Text | None = None
    join: Join | None = None
    findings: Texts = ()
    labels: Text | None = None
    separator: Text = "|"
    no_finding: Texts = ("No Finding",)
    handle_unknown: Literal["error", "ignore"] = "error"
    merge_rows: bool = False
    class_: Text | None = None
    classes: Texts = ()

    @property
    def files(self) -> Mapping[Any, str]:
        """Return the names of the files by part; the part is "" for all images."""
        return {"": self.file} if isinstance(self.file, str) else self.file

    @property
    def paths(self) -> Mapping[Any, str]:
        """Return the pattern of the paths in each file, by part as `files`."""
        return dict.fromkeys(self.files, self.path) if isinstance(self.path, str) else self.path

    def __post_init__(self) -> None:
        if self.paths.keys() != self.files.keys():
            raise ValueError("'path' and 'file' differ in their parts; give each part in both")
        for key in LISTS:
            values = getattr(self, key)
            if len(set(values)) < len(values):
                raise ValueError(f"'{key}' is {list(values)}; {LIST_HINT}")
        if (self.class_ and self.labels) or not (self.class_ or self.labels or self.findings):
            raise ValueError(
                "one type of labels is needed; give 'findings' (a column each), or 'labels' and"
                " 'findings' (a column of names), or 'class'"
            )
        if self.merge_rows and self.class_:
            raise ValueError("'merge_rows' joins findings only; remove it, or give 'findings'")
        if self.labels and not self.findings:
            raise ValueError("'labels' needs 'findings', the names to learn, in their order")
        try:
            re.compile(self.group_pattern or "")
        except re.error as error:
            raise ValueError(f"'group_pattern' is not a regular expression ({error})") from None
        for name in (*self.files.values(), *([self.join.file] if self.join else [])):
            if UNSAFE_PATH.search(name):
                raise ValueError(f"'file' is {name!r}; a path within the folder is needed")


FIELDS = msgspec.structs.fields(ColumnMapping)
KEYS = tuple(field.encode_name for field in FIELDS)
LISTS = tuple(field.name for field in FIELDS if field.type == Texts)
LIST_HINT = "a list of different texts is needed"
HINTS = dict.fromkeys(LISTS, LIST_HINT) | {
    "path": f"a pattern, or one for each of {', '.join(PARTS)}, is needed",
    "file": f"a name, or one for each of {', '.join(PARTS)}, is needed",
    "handle_unknown": "use 'error' or 'ignore'",
    "merge_rows": "use true or false",
}


def read_mapping(
    folder: Path, table: str | os.PathLike[str] | Mapping[str, Any] | None
) -> ColumnMapping:
    """Return the mapping: the dictionary, the named file, or the folder's `table.toml`."""
    if isinstance(table, Mapping):
        return _checked(dict(table), "the mapping", "")
    file = folder / MAPPING_FILE if table is None else Path(table)
    try:
        text = read_limited(file, MAX_TEXT_BYTES).decode("utf-8-sig")
        content = tomllib.loads(text)
    except FileNotFoundError:
        raise DataError(
            f"{file}: the mapping of columns is missing; write one (docs/your-images.md) or name"
            " one with --table"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot be read ({error}); fix it") from None
    return _checked(content, str(file), text)


def _checked(content: dict[str, Any], where: str, text: str) -> ColumnMapping:
    try:
        return msgspec.convert(content, ColumnMapping)
    except msgspec.ValidationError as error:
        line = _explained(str(error), content)
        found = re.match(r"'(\w+)' (?!is missing)", line)
        raise DataError(f"{where}{_line(text, found[1]) if found else ''}: {line}") from None


def _explained(error: str, content: Mapping[str, Any]) -> str:
    """Return what is wrong with a mapping: key, value, and what to write."""
    if "$.join" in error:
        return "'join' needs 'file' and 'on', the names of the columns in both"
    if found := re.search(r"unknown field `(.*)`", error):
        hint = did_you_mean(found[1], KEYS, f"the keys are {', '.join(KEYS)}")
        return f"'{found[1]}' is unknown; {hint}"
    if found := re.search(r"missing required field `(.*)`", error):
        return f"'{found[1]}' is missing; give the CSV's name and the images' path"
    if found := re.search(r"`\$\.(\w+)", error):
        return f"'{found[1]}' is {content[found[1]]!r}; {HINTS.get(found[1], 'a text is needed')}"
    return error


def _line(text: str, key: str) -> str:
    """Return the line of a key in a TOML file, found by a text search."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.split("=")[0].strip().strip("\"'") == key:
            return f", line {number}"
    return ""
