"""Read a JSON file with finite numbers, or refuse it in one line."""

import json
import math
from pathlib import Path
from typing import Any

from helpers.errors import UserError

LARGEST_FILE = 2**24
"""Bytes; the record of the longest training has a few hundred thousand."""


def read(path: Path) -> Any:
    """The content of ``path``.

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
        return json.loads(found, parse_float=_number, parse_int=_number, parse_constant=_number)
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
