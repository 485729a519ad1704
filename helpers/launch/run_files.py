"""Exchange JSON files between a launcher and its ranks in a folder that all hosts see.

Hosts of a cluster share a filesystem, so this project needs no open port. A user with write access
could change what a run does, so the folder belongs to this user alone. Files are written under
another name first; the renaming also makes a network filesystem refresh its view of the folder.
"""

import errno
import json
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

from data_prep.files import write_atomic
from helpers.launch import processes

PREFIX = "ranks-"
OWNER = "launcher"
"""Who made the folder (``processes.own``)."""
NOTEBOOK = "notebook.ipynb"
ALIVE = "alive"
"""The runner's sign of life: a number that grows every second."""
END = "end"
"""The runner asks that all ends."""
BEAT_SECONDS = 1.0
SILENT_SECONDS = 8.0
"""Without a sign of life for so long, the other side is treated as gone."""
WAIT_SECONDS = 0.005
RESERVE, RESERVED = ".reserve", 2**16
"""A file of so many bytes. It is removed when the disk is full, to make room for the error."""


def make_folder(run: Path) -> Path:
    """A new folder in a run's folder; those that a killed launcher left there go."""
    run.mkdir(parents=True, exist_ok=True)
    for old in run.glob(f"{PREFIX}*"):
        if old.is_dir() and not old.is_symlink() and not _is_in_use(old):
            shutil.rmtree(old, ignore_errors=True)
    folder = run / f"{PREFIX}{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    write(folder / OWNER, processes.own())
    (folder / RESERVE).write_bytes(bytes(RESERVED))
    return folder


def _is_in_use(folder: Path) -> bool:
    try:
        said = read(folder / OWNER)
        return said is not None and processes.runs(said) is not False
    except (OSError, ValueError, KeyError, TypeError):
        return False  # a killed launcher's


def write(path: Path, value: Any) -> None:
    """Put a value there as JSON, whole or not at all."""
    write_atomic(path, json.dumps(value).encode(), mode=0o600)


def write_last(path: Path, value: Any) -> None:
    """:func:`write` what ends the run, on a full disk too."""
    try:
        write(path, value)
    except OSError:
        (path.parent / RESERVE).unlink(missing_ok=True)
        write(path, value)


def read(path: Path) -> Any:
    """What :func:`write` put there; None while there is nothing."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESTALE):  # just replaced, on a network filesystem
            return None
        raise


def wait_for_all(folder: Path, kind: str, ranks: int) -> list[Any]:
    """What each rank puts there; the runner ends this one if another does not come."""
    found: dict[int, Any] = {}
    while True:
        for rank in set(range(ranks)) - found.keys():
            if (said := read(folder / f"{kind}-{rank}")) is not None:
                found[rank] = said
        if len(found) == ranks:
            return [found[rank] for rank in range(ranks)]
        time.sleep(WAIT_SECONDS)


def remove(folder: Path) -> None:
    """Remove the folder; a network filesystem may still hold files that a process has open."""
    for _ in range(3):
        shutil.rmtree(folder, ignore_errors=True)
