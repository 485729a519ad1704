"""Read, check and write the file of a record."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from helpers import paths
from helpers.errors import UserError
from helpers.launch import processes
from helpers.record import consistency, json_files
from helpers.record.types import EXTENSIBLE, SCHEMA, Record

FILE = "record.json"


def read(path: Path) -> Record:
    """The checked record at ``path`` (a file, or the run's folder).

    A record that says ``running`` although its process is gone is returned as ``interrupted``. If
    the process is on another host and its state is unknown, the reason says so. The file may be
    untrusted: its numbers are checked to be finite, and its texts to hold nothing but text.

    Raises:
        UserError: it is missing, is not JSON, or does not fit the schema.
    """
    path = Path(path)
    if path.is_dir():
        path = path / FILE
    if not path.exists():
        raise UserError(f"{path}: there is no record; run its notebook first")
    content: Record = json_files.read(path)
    check(content, path)
    if content["state"] == "running" and not (alive := processes.runs(content["run"])):
        who = processes.named(content["run"])
        content["reason"] = f"{who}: this host cannot find out if it still runs"
        if alive is not None:
            content["state"] = "interrupted"
            content["reason"] = "the process was killed before the run was finished"
    return content


def write(folder: Path, content: Mapping[str, Any]) -> None:
    """Put a record into a run's folder, in the place of an older one."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    paths.write_atomically(folder / FILE, text + "\n")


def check(content: Mapping[str, Any], where: Path | str = "record") -> None:
    """Check a record against its type, and its figures against each other.

    Raises:
        UserError: naming the first field that does not fit, or a newer version of the schema.
    """
    json_files.check(content, Record, SCHEMA, where, EXTENSIBLE)
    if (found := consistency.first(cast(Record, content))) is not None:
        raise UserError(f"{where}: field {found[0]} contradicts others: {found[1][:200]}")


def plain(value: Any) -> Any:
    """``value`` as JSON types: NumPy scalars and arrays unpacked, NaN as null, paths as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value
