"""Read untrusted JSON and check it against a type, or refuse it in one line.

Accepted content has finite numbers, and texts that are safe to show in a terminal or on a page.
"""

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from data_prep.errors import printable
from helpers.errors import UserError

LARGEST_FILE = 2**24
"""Bytes; the record of the longest training has a few hundred thousand."""
LARGEST_NUMBER = 1e24
"""Nothing that is measured is larger, not even a cluster's FLOP/s, and sums of such are finite."""


def read(path: Path, *, verbatim: Collection[str] = ()) -> Any:
    """The content of ``path``.

    Texts at the top called as one of ``verbatim`` stay as they were written: names of files, which
    may hold what no terminal shows.

    Raises:
        UserError: it cannot be read, or is not JSON of the kind that is written here.
    """
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for
            raise UserError(f"{path}: not a file; remove it")
        with path.open("rb") as file:
            found = file.read(LARGEST_FILE + 1)
        if len(found) > LARGEST_FILE:
            raise UserError(
                f"{path}: more than {LARGEST_FILE >> 20} MiB, so this project did not write it; "
                "remove it"
            )
        content = json.loads(found, parse_float=_number, parse_int=_number, parse_constant=_number)
        shown = _printable(content)
        if isinstance(content, dict):
            shown |= {name: content[name] for name in verbatim if name in content}
        return shown
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise UserError(f"{path}: not a JSON file of this project (nested too deep)") from None
    except ValueError as error:
        raise UserError(f"{path}: not a JSON file of this project ({error})") from None


def check(
    content: Any, kind: Any, schema: int, where: Path | str, extensible: Collection[str] = ()
) -> None:
    """Check that ``content`` has the fields of a TypedDict, and no others.

    ``schema`` is the newest version of ``kind``, the TypedDict; ``extensible`` are fields at the
    top that may have other fields.

    Raises:
        UserError: naming a field that does not fit, or a newer version of the schema.
    """
    said = content.get("schema") if isinstance(content, dict) else None
    if isinstance(said, int) and said > schema:
        raise UserError(
            f"{where}: written by a newer version of this project (schema {said}, not {schema}):"
            " update the checkout"
        )
    try:
        known = msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        why, _, path = str(error).partition(" - at ")
        field = "/".join(re.findall(r"\w+", path)) or "(top)"
        raise UserError(f"{where}: field {field} does not fit the schema: {why[:200]}") from None
    for field in _unknown(content, known):
        if field.partition("/")[0] not in extensible:
            raise UserError(f"{where}: field {field[:200]} does not fit the schema: it is unknown")


def _unknown(given: Any, known: Any, path: str = "") -> Iterator[str]:
    """The fields that are given and that ``known``, which has the type's alone, lacks."""
    if isinstance(given, dict):
        for key, value in given.items():
            if key not in known:
                yield f"{path}{key}"
            else:
                yield from _unknown(value, known[key], f"{path}{key}/")
    elif isinstance(given, list):
        for number, (value, other) in enumerate(zip(given, known, strict=True)):
            yield from _unknown(value, other, f"{path}{number}/")


def _number(text: str) -> float:
    value = float(text)
    if not abs(value) <= LARGEST_NUMBER:
        raise ValueError(f"{text[:20]} is no number that was measured")
    return int(value) if value.is_integer() else value  # 2.0 counts devices as 2 does


def _printable(value: Any) -> Any:
    """``value`` with the escapes in its texts spelt out."""
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return printable(value) if isinstance(value, str) else value
