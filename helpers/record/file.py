"""Read, check and write the file of a record."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from data_prep.errors import DataError, printable
from data_prep.files import read_limited
from helpers import paths
from helpers.errors import UserError
from helpers.record import processes
from helpers.record.types import Record

FILE = "record.json"
LARGEST_FILE = 2**24
"""Bytes; the record of the longest training has a few hundred thousand."""
_AFTER_START = ("devices", "recipe", "hardware")
_WHEN_FINISHED = (
    *("data", "weights", "fairness", "epochs", "training", "test", "files", "synthetic", "loader"),
    *("attribution", "monitor"),
)


def read(path: Path) -> dict[str, Any]:
    """The checked record at ``path`` (a file, or the run's folder).

    A record that says ``running`` although its process is gone is returned as ``interrupted``.

    Raises:
        UserError: it is missing, is not JSON, or does not fit the schema.
    """
    path = path / FILE if path.is_dir() else path
    if not path.exists():
        raise UserError(f"{path}: there is no record; run its notebook first")
    check(content := plain(read_json(path)), path)
    if content["state"] == "running" and not (alive := processes.runs(content["run"])):
        process, host = content["run"]["process"], content["run"]["host"]
        content["reason"] = f"process {process} on {host}: this host cannot tell if it still runs"
        if alive is not None:
            content["state"] = "interrupted"
            content["reason"] = "the process was killed before the run was finished"
    return content


def write(folder: Path, content: Mapping[str, Any]) -> None:
    """Write a record into a run's folder, replacing an older one."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    paths.write_atomically(folder / FILE, text + "\n")


def check(content: Any, where: Path | str = "record") -> None:
    """Check a record against its type, and that it has the sections of its state.

    Raises:
        UserError: naming a field that does not fit, or the first section that is missing.
    """
    try:
        msgspec.convert(content, Record)
    except msgspec.ValidationError as error:
        why, _, path = str(error).partition(" - at ")
        field = "/".join(re.findall(r"\w+", path)) or "(top)"
        raise UserError(f"{where}: field {field} does not fit the schema: {why[:200]}") from None
    state = content["state"]
    required = _AFTER_START + (_WHEN_FINISHED if state == "finished" else ())
    if state in ("skipped", "failed"):
        required = ("reason",)
    for name in required:
        if content.get(name) in (None, ""):
            raise UserError(f"{where}: field {name} is missing, although the state is {state}")


def read_json(path: Path) -> Any:
    """The content of ``path``.

    Raises:
        UserError: it cannot be read, or is not JSON of the kind that is written here.
    """
    try:
        return msgspec.json.decode(read_limited(path, LARGEST_FILE))
    except DataError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a JSON file of this project ({error})") from None


def plain(value: Any) -> Any:
    """``value`` as JSON types: NumPy's unpacked, NaN as null, texts harmless on a terminal."""
    if isinstance(value, Mapping):
        return {printable(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return printable(str(value)) if isinstance(value, str | Path) else value
