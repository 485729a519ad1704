"""Check that paths in an untrusted list stay inside the data folder."""

from __future__ import annotations

import json
import os
import re
import unicodedata
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
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def follows_links(links: str) -> bool:
    """Return the meaning of the option `links`: follow links out of the folder, or refuse them."""
    if links not in ("refuse", "follow"):
        raise DataError(f"links is {links!r}; use 'refuse' or 'follow'")
    return links == "follow"


def check_link(folder: Path, place: str, follow_links: bool) -> None:
    """Raise `DataError` for a path that leads out of the folder, unless links are followed."""
    if not follow_links:
        refuse_outside(
            folder, place, 'allow links with --follow-links (in a recipe: links = "follow")'
        )


def locate_files(
    folder: Path, paths: Sequence[str], listed_in: Path, follow_links: bool = False
) -> list[str]:
    """Return the (safe) paths as the disk spells them, whose Unicode form may differ.

    Raises `DataError` if one of them is missing or leads out through a link. Each folder is listed
    once, so a million files take seconds.
    """
    listed: dict[str, dict[str, bool]] = {}
    respelled: dict[str, dict[str, str]] = {}
    found, missing = [], []
    for path in paths:
        place, _, name = path.rpartition("/")
        if place not in listed:
            listed[place] = _list_folder(folder, place, follow_links)
        is_link = listed[place].get(name)
        if is_link is None:
            if place not in respelled:
                respelled[place] = {same_form(other): other for other in listed[place]}
            name = respelled[place].get(same_form(name), "")
            if not name:
                missing.append(path)
                continue
            path, is_link = f"{place}/{name}".lstrip("/"), listed[place][name]
        if is_link:
            check_link(folder, path, follow_links)
        found.append(path)
    if missing:
        first = missing[0]
        place, _, name = first.rpartition("/")
        raise DataError(
            f"{folder}: {len(missing):,} of the {len(paths):,} images named in {listed_in.name} are"
            f" missing, the first is {first}; {_missing_hint(folder, first, listed[place])}"
        )
    return found


def same_form(text: str) -> str:
    """Return a text in the Unicode form that most systems use; a Mac's disk has another."""
    return unicodedata.normalize("NFC", text)


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


def resolve_wildcards(folder: Path, paths: Sequence[str], follow_links: bool = False) -> list[str]:
    """Return the (safe) paths with `*` replaced by the one folder that contains the image.

    `**` stands for folders at any level. The path of a missing image is returned unchanged.
    """
    places: dict[str, dict[str, list[str]]] = {}  # pattern of folders, name, folders with the name
    found = []
    for path in paths:
        pattern, _, name = path.rpartition("/")
        if pattern not in places:
            places[pattern] = (
                _folders_by_name(folder, pattern, follow_links) if "*" in pattern else {}
            )
        there = places[pattern].get(name, [])
        if len(there) > 1:
            raise DataError(
                f"{folder}: {path} is both {' and '.join(there[:2])}; remove one, or name its"
                " folder in the mapping's path"
            )
        found += there or [path]
    return found


def _folders_by_name(folder: Path, pattern: str, follow_links: bool) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    try:  # of the signs that pathlib replaces, only * is ours
        places = sorted(folder.glob(re.sub(r"[?[]", r"[\g<0>]", pattern)))
    except ValueError:
        raise DataError(f"{folder}: {pattern!r}: '**' must be a whole folder of the path") from None
    for place in places:
        if place.is_dir():
            inside = place.relative_to(folder)
            for name in _list_folder(folder, inside.as_posix(), follow_links):
                found.setdefault(name, []).append((inside / name).as_posix())
    return found


def _list_folder(folder: Path, place: str, follow_links: bool) -> dict[str, bool]:
    """Return the names in a subfolder, with True for a link; empty if the subfolder is missing."""
    check_link(folder, place, follow_links)
    try:
        with os.scandir(folder / place) as entries:
            return {entry.name: entry.is_symlink() for entry in entries}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise DataError(f"{folder / place}: cannot be read ({error.strerror})") from None


def refuse_outside(
    folder: Path, place: str, fix: str = "name the folder that holds the files"
) -> None:
    """Raise `DataError` for a path that leads out of the folder through a link."""
    home, end = os.path.realpath(folder), os.path.realpath(folder / place)
    if end != home and not end.startswith(os.path.join(home, "")):  # noqa: PTH118
        raise DataError(
            f"{folder / place}: a link that leads out of the folder, which is not allowed;"
            f" copy the files into the folder, or {fix}"
        )
