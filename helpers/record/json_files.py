"""Read a JSON file, or refuse it in one line.

Accepted content has finite numbers, and texts that are safe to show in a terminal or on a page.
"""

import json
import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

from data_prep.errors import printable
from helpers.errors import UserError

LARGEST_FILE = 2**24
"""Bytes; the record of the longest training has a few hundred thousand."""


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


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is no number that was measured")
    return int(value) if value.is_integer() else value  # 2.0 counts devices as 2 does


def _printable(value: Any) -> Any:
    """``value`` with the escapes in its texts spelt out."""
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_printable(item) for item in value]
    return printable(value) if isinstance(value, str) else value
