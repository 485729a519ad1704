"""A small disk whose power can be cut, for tests of what is promised to survive that.

The disk is an ext4 file system in a file, mounted by way of a loop device. What programs write
lies in memory until the kernel or an fsync brings it to the file, so a copy of the file is what a
machine finds on its disk after a power cut.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Disk(NamedTuple):
    """A mounted file system: the file that it lies in, and where its files are."""

    image: Path
    folder: Path


@contextlib.contextmanager
def disk(place: Path, megabytes: int = 64) -> Iterator[Disk]:
    """A new, empty disk, mounted in a folder of `place`."""
    image = place / "disk.img"
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    _run("mkfs.ext4", "-q", "-F", image)
    with mounted(image, place / "disk") as made:
        yield made


@contextlib.contextmanager
def mounted(image: Path, folder: Path) -> Iterator[Disk]:
    """The disk in this file, mounted at `folder`, which is made."""
    folder.mkdir()
    _run("mount", "-o", "loop", image, folder)
    try:
        yield Disk(image, folder)
    finally:
        _run("umount", folder)


def cut(
    of: Disk, to: Path, running: subprocess.Popen[bytes] | None = None, *, names_first: bool = True
) -> Path:
    """End a program with its session as a power cut would, and copy the disk to the file `to`.

    A cut does most harm with `names_first`: another program's fsync has just brought all new names
    to the disk, but not the bytes of other programs' files.
    """
    if running is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    if names_first:
        with (of.folder / "neighbour").open("wb", buffering=0) as file:
            file.write(b"x")
            os.fsync(file.fileno())
        (of.folder / "neighbour").unlink()
    # Two copies in a row that are the same: nothing was written to the disk meanwhile.
    again = to.with_suffix(".again")
    while True:
        for copy in (to, again):
            shutil.copyfile(of.image, copy)
        if filecmp.cmp(to, again, shallow=False):
            again.unlink()
            return to


@cache
def why_not() -> str:
    """Why this machine cannot play this, or nothing."""
    if os.geteuid() != 0:
        return "mounting a file system needs root"
    missing = [tool for tool in ("mkfs.ext4", "mount", "umount") if shutil.which(tool) is None]
    if missing:
        return f"no {missing[0]} on this machine"
    with tempfile.TemporaryDirectory() as place:
        try:
            with disk(Path(place), megabytes=8):
                return ""
        except subprocess.CalledProcessError as error:
            return f"{Path(error.cmd[0]).name} does not work here: {error.stderr.strip()}"


def _run(*words: str | Path) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)
