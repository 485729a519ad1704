"""The process that copies an experiment's images to its node's disk, and removes the copy.

It copies and verifies the images, prints a line about it, and waits. It removes the copy when its
standard input ends, as it also does when the runner is killed, or at SIGTERM, as Slurm sends it to
a cancelled job. It removes nothing but a folder that it has created. Nodes that share a disk get
one copy. A process that was itself killed leaves its copy to the next one on its machine.
"""

import hashlib
import json
import os
import shutil
import signal
import socket
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from filelock import FileLock

from data_prep import manifest
from data_prep.errors import DataError
from data_prep.files import open_regular
from data_prep.folder_state import is_packed
from helpers.errors import UserError, refusal
from helpers.frameworks import rank_info, temporary_files

PREFIX = "rosetta-stage-"
"""How the name of each copy's folder begins."""
COPIES = 8
"""Files that are copied at a time: on a shared filesystem most of the time is waiting."""
BLOCK = 2**20


def keep(source: Path, place: str, name: str) -> None:
    """Copy the images to this node, print one line about it, and remove the copy at the end."""
    ending = Event()

    def end(number: int, frame: Any) -> None:
        if not ending.is_set():
            ending.set()
            raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    Thread(target=_end_with_input, daemon=True).start()
    said: dict[str, Any] = {"node": os.environ.get(rank_info.SLURM_NODE) or socket.gethostname()}
    began = time.monotonic()
    try:
        folder = _checked(place, source) / name
        try:
            folder.mkdir(0o700)
        except FileExistsError:  # another node of this job has the same disk
            while not (folder / "whole").exists():  # if its process fails, the runner ends this one
                time.sleep(0.2)
            said["bytes"] = sum(size for _, size in _files(source))
            _tell(said, folder, source, began)
            ending.wait()
            return
        try:
            with FileLock(folder / temporary_files.LOCK):
                (folder / temporary_files.HOST).write_text(socket.gethostname(), encoding="utf-8")
                said["bytes"] = _copy_all(source, folder / "part" / source.name, ending)
                (folder / "part").rename(folder / "whole")
                _tell(said, folder, source, began)
                ending.wait()
        finally:
            ending.set()  # a signal no longer interrupts
            shutil.rmtree(folder, ignore_errors=True)
    except (UserError, DataError) as error:
        print(json.dumps(said | {"error": str(error)}), flush=True)
    except OSError as error:
        print(json.dumps(said | {"error": refusal(error)}), flush=True)


def _tell(said: dict[str, Any], folder: Path, source: Path, began: float) -> None:
    said |= {"copy": str(folder / "whole" / source.name), "seconds": time.monotonic() - began}
    print(json.dumps(said), flush=True)


def _end_with_input() -> None:
    """End this process with the runner, which holds the other end of its standard input."""
    with suppress(OSError):
        while os.read(0, BLOCK):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def _checked(place: str, source: Path) -> Path:
    """The folder to copy to, without the copies that killed processes of this machine left."""
    folder = Path(os.path.expandvars(place))
    if "$" in str(folder):
        raise UserError("the variable is not set here: give a path, or a variable of your jobs")
    if not folder.is_absolute() or not folder.is_dir():
        raise UserError(f"{folder} is not the absolute path of an existing folder: give another")
    folder = folder.resolve()
    if source in (folder, *folder.parents):
        raise UserError(f"{folder} is inside the images, {source}: give a folder outside of them")
    for left in folder.glob(f"{PREFIX}*"):
        temporary_files.remove_left(left)
    return folder


def _files(source: Path) -> list[tuple[Path, int]]:
    """All files of a folder, or the file itself, with their bytes."""
    if source.is_file():
        return [(source, source.stat().st_size)]
    found = []
    for folder, folders, names in os.walk(source, onerror=_unreadable):
        for path in (Path(folder, name) for name in (*folders, *names)):
            about = path.lstat()
            if stat.S_ISREG(about.st_mode):
                found.append((path, about.st_size))
            elif not stat.S_ISDIR(about.st_mode):
                raise UserError(f"{path} is a link, a pipe or a device: only files can be copied")
    return found


def _unreadable(error: OSError) -> None:
    raise error


def _copy_all(source: Path, target: Path, ending: Event) -> int:
    """Copy the images, verify each file, and return their bytes."""
    files = _files(source)
    need, free = sum(size for _, size in files), shutil.disk_usage(target.parents[1]).free
    if need > free:
        raise UserError(
            f"{target.parents[2]} has {free / 1e6:,.1f} MB free, and {source} has "
            f"{need / 1e6:,.1f} MB: free some space or give another folder"
        )
    rows = {} if source.is_file() or is_packed(source) else manifest.read_manifest(source)
    wanted = {source / row.file: row.sha256 for row in rows.values() if row.file}
    if lacking := wanted.keys() - {path for path, _ in files}:
        raise UserError(f"{min(lacking)} is missing, which {manifest.MANIFEST} lists")
    for folder in {path.parent for path, _ in files}:
        (target / folder.relative_to(source) if source.is_dir() else target.parent).mkdir(
            parents=True, exist_ok=True
        )
    copy = partial(_copy, source, target, wanted, ending)
    with ThreadPoolExecutor(COPIES) as pool:
        try:
            for _ in pool.map(copy, (path for path, _ in files)):
                pass
        finally:
            pool.shutdown(cancel_futures=True)
    return need


def _copy(source: Path, target: Path, wanted: dict[Path, str], ending: Event, path: Path) -> None:
    """Copy a file, read its copy again, and compare it with the manifest or with the source."""
    digest, copy = hashlib.sha256(), target / path.relative_to(source)
    with open_regular(path) as given, copy.open("xb") as file:
        while (block := given.read(BLOCK)) and not ending.is_set():
            digest.update(block)
            file.write(block)
    if ending.is_set():
        return
    with copy.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if path in wanted and digest.hexdigest() != wanted[path]:
        raise UserError(f"{path} is not as {manifest.MANIFEST} lists it: see data-prep verify")
    if found != digest.hexdigest():
        raise UserError(f"{copy}: differs from {path} after it was copied: check that disk")


if __name__ == "__main__":
    keep(Path(sys.argv[1]), *sys.argv[2:])
