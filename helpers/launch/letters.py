"""The files by which a coordinator and its ranks talk: a folder that all hosts see.

Hosts of a cluster share a filesystem, so that nothing has to listen on a port of ours. Whoever
could write here could run code as this user: the folder is this user's alone, and so is each file.
They are written under another name first, which also makes a network filesystem look again at what
is in the folder.
"""

import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import cloudpickle

PREFIX = "ranks-"


def make_folder(run: Path) -> Path:
    """A new folder for messages in a run's folder; what a killed coordinator left there goes."""
    run.mkdir(parents=True, exist_ok=True)
    for old in run.glob(f"{PREFIX}*"):
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old, ignore_errors=True)
    folder = run / f"{PREFIX}{secrets.token_hex(8)}"
    folder.mkdir(mode=0o700)
    return folder


def send(path: Path, value: Any) -> None:
    """Put a Python object there, whole or not at all."""
    _write(path, cloudpickle.dumps(value))


def say(path: Path, value: dict[str, Any]) -> None:
    """The same as JSON, of figures and texts."""
    _write(path, json.dumps(value).encode())


def received(path: Path) -> Any:
    """What :func:`send` put there.

    Raises:
        FileNotFoundError: nothing yet.
    """
    return cloudpickle.loads(path.read_bytes())


def heard(path: Path) -> dict[str, Any] | None:
    """What :func:`say` put there; None while there is nothing."""
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return found


def _write(path: Path, data: bytes) -> None:
    under = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(under, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(file, "wb") as opened:
        opened.write(data)
    under.replace(path)


def remove(folder: Path) -> None:
    """Take the folder away; a network filesystem may still hold what somebody has open."""
    for _ in range(3):
        shutil.rmtree(folder, ignore_errors=True)
