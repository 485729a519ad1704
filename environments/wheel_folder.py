"""Read and check the folder that `make wheels` fills for `make envs ARGS="--offline FOLDER"`.

Its index, `wheels.json`, names the environments, their variants, the locks, Python and the
platform, and lists all files with size and SHA-256. All of this is checked before a build begins.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import kernels
import python311
import sources
from kernels import HERE

INDEX = "wheels.json"
PYTHON = f"python-{python311.VERSION}.tar"
FORMAT = 1
MACHINE = "x86_64"
GLIBC = "2.28"
"""The version that the locks and all wheels require (RHEL 8, Debian 10, Ubuntu 20.04)."""


class NotUsable(Exception):
    """The folder cannot be used; the message is one line with the reason and the remedy."""


class Folder(NamedTuple):
    """A folder and the contents of its index."""

    path: Path
    variants: dict[str, str]  # by environment
    locks: dict[str, str]  # SHA-256 by file name
    files: dict[str, dict[str, Any]]  # "for" (a pin), "bytes", "sha256", "built"; by path


def locks_of(variants: Mapping[str, str]) -> list[Path]:
    """Every lock that these variants of environments are built from."""
    names = ["uv.txt", "tools.txt", "pillow-simd.txt"]
    names += ["chainercv.txt"] * ("chainer" in variants)
    names += ["horovod-source.txt"] * ("horovod" in variants)
    return [HERE / name for name in names] + [kernels.lock_of(*both) for both in variants.items()]


def pins_of(locks: Iterable[Path]) -> dict[str, str]:
    """The packages of locks, `name==version`, each with the lines of its hashes."""
    entry = re.compile(r"^([a-z0-9][^ ;\\]*).*?(?=^\S|\Z)", re.M | re.S)
    return {
        bare(found[1]): found[0]
        for lock in locks
        for found in entry.finditer(lock.read_text(encoding="utf-8"))
    }


def bare(pin: str) -> str:
    """A pin without its extras, which differ between locks."""
    name, _, version = pin.partition("==")
    return f"{name.partition('[')[0]}=={version}"


def digest(path: Path) -> str:
    """The SHA-256 of a file. Raises OSError."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()


# --- Checking the folder ---------------------------------------------------------------------


def read(path: Path) -> Folder:
    """Read a folder's index. Raises NotUsable."""
    if not path.is_dir():
        raise NotUsable(f"{path}: no such folder (make wheels creates one, with a network)")
    index = kernels.read_json(path / INDEX)
    fields = [index.get(name) for name in ("forms", "locks", "files")]
    if index.get("format") != FORMAT or not all(isinstance(field, dict) for field in fields):
        raise NotUsable(
            f"{path / INDEX}: missing or damaged: run make wheels again, or copy the folder again"
        )
    python, machine, glibc = (str(index.get(name)) for name in ("python", "machine", "glibc"))
    library, version = platform.libc_ver()
    ours = platform.machine(), version if library == "glibc" else ""
    if python != python311.VERSION:
        raise NotUsable(
            f"{path}: has wheels for Python {python}, not {python311.VERSION}: "
            "run make wheels of this checkout"
        )
    if machine != ours[0] or not glibc or _numbers(ours[1]) < _numbers(glibc):
        raise NotUsable(
            f"{path}: has wheels for {machine} with glibc {glibc} or newer, "
            f"and this machine is {ours[0]} with {ours[1] or 'none'}"
        )
    return Folder(path.resolve(), *fields)  # type: ignore[arg-type]


def check(folder: Folder, wanted: Iterable[str]) -> None:
    """Check that the folder has all unchanged files of these environments. Raises NotUsable."""
    variants = {kernel: folder.variants[kernel] for kernel in wanted if kernel in folder.variants}
    if lacking := [kernel for kernel in wanted if kernel not in variants]:
        raise NotUsable(
            f"{folder.path}: has no packages for {', '.join(lacking)}, only for "
            f"{', '.join(folder.variants)}"
        )
    for lock in locks_of(variants):
        if folder.locks.get(lock.name) != digest(lock):
            raise NotUsable(
                f"{folder.path}: belongs to a checkout with another {lock.name}: use that "
                "checkout, or run make wheels again"
            )
    pins = pins_of(locks_of(variants))
    for name, about in folder.files.items():
        if about["for"] in pins or name == PYTHON:
            _check_file(folder.path / name, about)
    if missing := pins.keys() - {about["for"] for about in folder.files.values()}:
        raise NotUsable(f"{folder.path}: lacks {min(missing)}: run make wheels again")


def _check_file(path: Path, about: dict[str, Any]) -> None:
    again = "copy the folder again, or repair it with make wheels on a machine with a network"
    try:
        size = path.stat().st_size
        if size != about["bytes"]:
            raise NotUsable(f"{path}: has {size} bytes, not {about['bytes']}: {again}")
        if digest(path) != about["sha256"]:
            raise NotUsable(f"{path}: is not the file that make wheels put there: {again}")
    except OSError as error:
        raise NotUsable(f"{path}: {error.strerror}: {again}") from None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


# --- Using it --------------------------------------------------------------------------------


def go_offline(folder: Folder) -> None:
    """Make pip and uv use only the folder from here on, whatever their settings are."""
    # A file URL, because pip ends a folder's name at a space, and uv at a comma.
    address = folder.path.as_uri()
    os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=address)
    os.environ.update(UV_OFFLINE="1", UV_FIND_LINKS=address, UV_PYTHON_DOWNLOADS="never")


def lock_with_built(lock: Path, folder: Folder, to: Path) -> Path:
    """Write a lock that also accepts the wheels that were built from its source archives.

    The hashes of these wheels come from the index, because the original lock cannot know them.
    """
    text = lock.read_text()
    for about in folder.files.values():
        if about.get("built"):
            head = re.compile(rf"^{re.escape(about['for'])} \\\n", re.M)
            text = head.sub(rf"\g<0>    --hash=sha256:{about['sha256']} \\\n", text)
    to.mkdir(parents=True, exist_ok=True)
    (to / lock.name).write_text(text)
    return to / lock.name


def bring_built(folder: Folder, python: Path, to: Path) -> None:
    """Copy the wheels that were built beforehand to the folder where a build expects them.

    pillow-simd's wheel is copied only if it was built for this CPU's instruction set and can be
    imported here by the tools' ``python``: this machine may have another version of libjpeg.
    """
    for name, about in folder.files.items():
        file, simd = folder.path / name, sources.instruction_set().lower()
        if about["for"].startswith("chainercv=="):
            shutil.copyfile(file, to / file.name)
        elif file.suffix == ".whl" and file.parent.name == simd and _loads(file, python, to):
            (to / simd).mkdir(exist_ok=True)
            shutil.copyfile(file, to / simd / file.name)


def _loads(wheel: Path, python: Path, scratch: Path) -> bool:
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(place)  # its hash was checked
        trial = f"import sys; sys.path.insert(0, {place!r}); import PIL._imaging"
        done = subprocess.run([python, "-I", "-c", trial], capture_output=True, check=False)
    return done.returncode == 0


def bring_python(folder: Folder, venvs: Path) -> str | None:
    """Unpack the folder's Python into `venvs/.python` once; None if the folder has no Python."""
    if PYTHON not in folder.files:
        return None
    python = venvs / ".python" / "bin" / f"python{python311.VERSION}"
    if not python.exists():
        shutil.rmtree(venvs / ".python", ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=venvs) as scratch:
            with tarfile.open(folder.path / PYTHON) as packed:
                packed.extractall(scratch)  # its hash was checked
            (Path(scratch) / "python").rename(venvs / ".python")
    return str(python)
