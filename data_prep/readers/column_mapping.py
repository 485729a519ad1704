"""Read and check a column mapping, `table.toml`, which says what the columns of a CSV mean.

The mapping may also be a dictionary with the same keys.

    file = "train.csv"              # or by part: file = {train = "train.csv", valid = "valid.csv"}
    path = "Path"                   # a column, or a pattern: "p{subject_id:2}/{dicom_id}.dcm" has
                                    # the first 2 characters of one column and all of another
    group = "PatientID"             # the group of an image: a column or a pattern
    group_pattern = "patient[0-9]+" # only the text that this regular expression finds
    split = "split"                 # a column of train, valid (val, validate, validation), test
    join = {file = "labels.csv", on = ["study_id"]}  # columns of a second file

and one of three types of labels:

    findings = ["Edema", "Mass"]    # a column each, with the texts in positive, negative,
                                    # uncertain and missing
    labels = "Finding Labels"       # one column of names, separated by `separator`, or ...
    label_format = "list"           # ... written as Python's list: "['edema', 'mass']"
    no_finding = ["No Finding"]     # names that mean no finding
    handle_unknown = "ignore"       # names not in findings: "error" or "ignore"
    class = "label"                 # a column with the class; classes = [...] sets the order
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from data_prep.errors import DataError
from data_prep.files import MAX_TEXT_BYTES, read_limited
from data_prep.former_names import TABLE_KEYS, with_current_keys
from data_prep.readers.path_safety import UNSAFE_PATH
from data_prep.split import PARTS

MAPPING_FILE = "table.toml"


@dataclass(frozen=True)
class ColumnMapping:
    """A checked mapping, with the keys of the file and `class_` for `class`."""

    where: str
    file: dict[str, str]
    path: str
    name: str = ""
    group: str = ""
    group_pattern: str = ""
    split: str = ""
    join: dict[str, Any] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    labels: str = ""
    separator: str = "|"
    label_format: str = "separated"
    no_finding: tuple[str, ...] = ("No Finding",)
    handle_unknown: str = "error"
    class_: str = ""
    classes: tuple[str, ...] = ()
    positive: tuple[str, ...] = ("1", "1.0")
    negative: tuple[str, ...] = ("0", "0.0")
    uncertain: tuple[str, ...] = ("-1", "-1.0")
    missing: tuple[str, ...] = ("",)


KEYS = tuple(f.name.rstrip("_") for f in fields(ColumnMapping) if f.name != "where")
TEXTS = (
    "path",
    "name",
    "group",
    "group_pattern",
    "split",
    "labels",
    "separator",
    "label_format",
    "handle_unknown",
)
LISTS = ("findings", "no_finding", "classes", "positive", "negative", "uncertain", "missing")


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
            f"{file}: the mapping of columns is missing; write one (docs/data.md, 'Any table') or"
            " name one with --table"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: cannot be read ({error}); fix it") from None
    return _checked(content, str(file), text)


def _checked(content: dict[str, Any], where: str, text: str) -> ColumnMapping:
    def wrong(key: str, says: str) -> DataError:
        return DataError(f"{where}{_line(text, key)}: '{key}' {says}")

    content = with_current_keys(content, TABLE_KEYS, where)
    for key, value in content.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"the keys are {', '.join(KEYS)}"
            raise wrong(key, f"is unknown; {hint}")
        if key in TEXTS and not (isinstance(value, str) and value):
            raise wrong(key, f"is {value!r}; a text is needed")
        if key in LISTS and not _is_text_list(value):
            raise wrong(key, f"is {value!r}; a list of different texts is needed")
    for key in ("file", "path"):
        if key not in content:
            raise DataError(
                f"{where}: '{key}' is missing; give the CSV's name and the images' path"
            )
    kinds = [key for key in ("class", "labels") if key in content]
    if len(kinds) != 1 and (kinds or "findings" not in content):
        raise DataError(
            f"{where}: one type of labels is needed; give 'findings' (a column each), or 'labels'"
            " and 'findings' (a column of names), or 'class'"
        )
    if "labels" in content and "findings" not in content:
        raise wrong("labels", "needs 'findings', the names to learn, in their order")
    if content.get("label_format", "separated") not in ("separated", "list"):
        value = content["label_format"]
        raise wrong("label_format", f"is {value!r}; use 'separated' or 'list'")
    if content.get("handle_unknown", "error") not in ("error", "ignore"):
        value = content["handle_unknown"]
        raise wrong("handle_unknown", f"is {value!r}; use 'error' or 'ignore'")
    try:
        re.compile(content.get("group_pattern", ""))
    except re.error as error:
        raise wrong("group_pattern", f"is no regular expression ({error})") from None
    file = content["file"]
    files = {"": file} if isinstance(file, str) else file
    if not isinstance(files, dict) or not files or not set(files) <= {"", *PARTS}:
        raise wrong(
            "file", f"is {file!r}; a name, or one for each of {', '.join(PARTS)}, is needed"
        )
    join = content.get("join", {})
    if join and not (
        isinstance(join, dict) and set(join) == {"file", "on"} and _is_text_list(join["on"])
    ):
        raise wrong("join", "needs 'file' and 'on', the names of the columns in both")
    for name in (*files.values(), *([join["file"]] if join else [])):
        if not isinstance(name, str) or UNSAFE_PATH.search(name):
            raise wrong("file", f"is {name!r}; a path within the folder is needed")
    values: dict[str, Any] = {
        key: tuple(value) if key in LISTS else value for key, value in content.items()
    }
    values["file"] = files
    if "class" in values:
        values["class_"] = values.pop("class")
    return ColumnMapping(where, **values)


def _is_text_list(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(text, str) for text in value)
        and len(set(value)) == len(value)
    )


def _line(text: str, key: str) -> str:
    """Return the line of a key in a TOML file, found by a text search."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.split("=")[0].strip().strip("\"'") == key:
            return f", line {number}"
    return ""


#: A column's name in a pattern, and the number of its first characters to use.
FIELD = re.compile(r"\{([^{}:]+)(?::([0-9]+))?\}")


def parse_pattern(pattern: str) -> list[tuple[str, str, int | None]]:
    """Return the pieces of a pattern: text before a column, column, number of its characters.

    The text at the end is ("text", "", None). A pattern without braces is a column's name.
    """
    if "{" not in pattern:
        return [("", pattern, None)]
    pieces, at = [], 0
    for found in FIELD.finditer(pattern):
        most = None if found[2] is None else int(found[2])
        pieces.append((pattern[at : found.start()], found[1], most))
        at = found.end()
    if pattern[at:]:
        pieces.append((pattern[at:], "", None))
    return pieces
