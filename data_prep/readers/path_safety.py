"""Find the files that an untrusted list names, within the data folder."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from data_prep.errors import DataError

#: Unsafe parts of a path: an absolute start, a parent folder, a drive, control characters, text
#: that is not UTF-8.
UNSAFE_PATH = re.compile(
    r"^/|(?:^|/)\.\.?(?:/|$)|//|/$|^[A-Za-z]:|[\x00-\x1f\x7f\\\ud800-\udfff]|^$"
)


def is_utf8(text: str) -> bool:
    """Return whether a text can be encoded as UTF-8; a lone surrogate cannot."""
    return text.encode(errors="ignore").decode() == text


def same_form(text: str) -> str:
    """Return a text in the Unicode form that most systems use; a Mac's disk has another."""
    return unicodedata.normalize("NFC", text)


def locate_files(folder: Path, paths: Sequence[str], listed_in: Path) -> list[str]:
    """Return the (safe) paths as the disk spells them, whose Unicode form may differ.

    Each folder is listed once, so a million files take seconds.
    """
    listed: dict[str, set[str]] = {}
    respelled: dict[str, dict[str, str]] = {}
    found, missing = [], []
    for path in paths:
        place, _, name = path.rpartition("/")
        if place not in listed:
            listed[place] = _list_folder(folder / place)
        if name not in listed[place]:
            if place not in respelled:
                respelled[place] = {same_form(other): other for other in listed[place]}
            name = respelled[place].get(same_form(name), "")
            if not name:
                missing.append(path)
                continue
            path = f"{place}/{name}".lstrip("/")
        found.append(path)
    if missing:
        first = missing[0]
        raise DataError(
            f"{folder}: {len(missing):,} of the {len(paths):,} images named in {listed_in.name} are"
            f" missing, the first is {first};"
            f" {_missing_hint(folder, first, listed[first.rpartition('/')[0]])}"
        )
    return found


def _missing_hint(folder: Path, path: str, names: Iterable[str]) -> str:
    if prefix := missing_prefix(folder, path):
        text = json.dumps(prefix, ensure_ascii=False)
        return f"its start is not there: add remove_prefix = {text} to the mapping"
    if near := near_file(names, path.rpartition("/")[2]):
        return f"{near}: fix the cells, or the path in the mapping, such as {{column}}.png"
    return "add them, or fix the path in the mapping ('*' stands for any folder)"


def missing_prefix(folder: Path, path: str) -> str:
    """Return the start of a (safe) path without which the file exists, or an empty text."""
    for end in re.finditer("/", path):
        if os.path.isfile(folder / path[end.end() :]):  # noqa: PTH113 (no error: a long name)
            return path[: end.end()]
    return ""


def bare_name(name: str) -> str:
    """Return what is left of a file's name without case, ending, leading zeros and `.0`."""
    stem = re.sub(r"\.(?:0+|[a-z]{3,5})$", "", same_form(name).casefold())
    return re.sub("(?<![0-9])0+(?=[0-9])", "", stem)


def near_file(names: Iterable[str], missing: str) -> str:
    """Return a text about a file whose name hardly differs from the missing name, or ""."""
    bare = bare_name(missing)
    near = next((name for name in sorted(names) if bare_name(name) == bare), None)
    if near is None:
        return ""
    return f"'{near}' is there, whose name differs in ending, case, leading zeros or '.0'"


def resolve_wildcards(folder: Path, paths: Sequence[str]) -> list[str]:
    """Return the (safe) paths with `*` replaced by the one folder that contains the image.

    `**` stands for folders at any level. The path of a missing image is returned unchanged.
    """
    there: dict[str, dict[str, list[str]]] = {}  # pattern of folders, name, files with the name
    found = []
    for path in paths:
        pattern, _, name = path.rpartition("/")
        if pattern not in there:
            there[pattern] = defaultdict(list)
            # pathlib also expands ? and [, which are literal here.
            places = re.sub(r"[?[]", r"[\g<0>]", f"{pattern}/*")
            try:
                files = [*folder.glob(places)] if "*" in pattern else []
            except ValueError as error:
                raise DataError(f"{folder}: the path {path!r}: {error}") from None
            for file in files:
                there[pattern][file.name].append(file.relative_to(folder).as_posix())
        same = sorted(there[pattern].get(name, []))
        if len(same) > 1:
            where = f"{folder}: {path} is both {' and '.join(same[:2])}"
            raise DataError(f"{where}; remove one, or name its folder in the mapping's path")
        found += same or [path]
    return found


def _list_folder(place: Path) -> set[str]:
    """Return the names in a folder; empty if it is missing."""
    try:
        return {*os.listdir(place)}  # noqa: PTH208 (speed)
    except (FileNotFoundError, NotADirectoryError):
        return set()
    except OSError as error:
        raise DataError(f"{place}: cannot be read ({error.strerror})") from None
