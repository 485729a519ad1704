"""The folder of wheels that `make wheels` fills and `make envs ARGS="--offline FOLDER"` reads.

Its index, `wheels.json`, says what the folder is for (kernels and their forms, locks, Python,
platform) and lists its files with size and SHA-256. Everything is checked before anything is made.
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
from device_code import requirements
from kernels import HERE

INDEX = "wheels.json"
PYTHON = f"python-{python311.VERSION}.tar"
FORMAT = 1
MACHINE = "x86_64"
GLIBC = "2.28"
"""What the locks are made for, and all wheels with them (RHEL 8, Debian 10, Ubuntu 20.04)."""


class NotUsable(Exception):
    """The folder cannot serve; the text is one line that says why and what to do."""


class Folder(NamedTuple):
    """A folder and its index, as read."""

    path: Path
    forms: dict[str, str]  # by kernel
    locks: dict[str, str]  # SHA-256 by file name
    files: dict[str, dict[str, Any]]  # "for" (a pin), "bytes", "sha256", "built"; by path


def locks_of(forms: Mapping[str, str]) -> list[Path]:
    """Every lock that environments of these forms are made from, by kernel."""
    names = ["uv.txt", "tools.txt", "pillow-simd.txt"]
    names += ["chainercv.txt"] * ("chainer" in forms)
    names += ["horovod-source.txt"] * ("horovod" in forms)
    return [HERE / name for name in names] + [kernels.lock_of(*both) for both in forms.items()]


def pins_of(locks: Iterable[Path]) -> dict[str, str]:
    """The packages of locks, `name==version`, each with the lines that hold its hashes."""
    found = {pin: entry for lock in locks for pin, entry in requirements(lock).items()}
    return {bare(pin): entry for pin, entry in found.items()}


def bare(pin: str) -> str:
    """A pin without its extras, of which one lock may ask for other ones than another."""
    name, _, version = pin.partition("==")
    return f"{name.partition('[')[0]}=={version}"


def digest(path: Path) -> str:
    """The SHA-256 of a file. Raises OSError."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()


# --- Is it whole, and for here? --------------------------------------------------------------


def read(path: Path) -> Folder:
    """Opens a folder by its index. Raises NotUsable."""
    if not path.is_dir():
        raise NotUsable(f"{path}: no such folder (make wheels makes one, where there is a network)")
    index = kernels.read_json(path / INDEX)
    fields = [index.get(name) for name in ("forms", "locks", "files")]
    if index.get("format") != FORMAT or not all(isinstance(field, dict) for field in fields):
        raise NotUsable(
            f"{path / INDEX}: missing or damaged: let make wheels end, or copy it again"
        )
    python, machine, glibc = (str(index.get(name)) for name in ("python", "machine", "glibc"))
    ours = platform.machine(), _glibc()
    if python != python311.VERSION:
        raise NotUsable(f"{path}: holds wheels for Python {python}, not {python311.VERSION}")
    if machine != ours[0] or not glibc or _numbers(ours[1]) < _numbers(glibc):
        raise NotUsable(
            f"{path}: holds wheels for {machine} with glibc {glibc} or newer, "
            f"and this machine is {ours[0]} with {ours[1] or 'none'}"
        )
    return Folder(path.resolve(), *fields)  # type: ignore[arg-type]


def check(folder: Folder, wanted: Iterable[str]) -> None:
    """Whether the folder has all that these kernels need, unchanged. Raises NotUsable."""
    forms = {kernel: folder.forms[kernel] for kernel in wanted if kernel in folder.forms}
    if lacking := [kernel for kernel in wanted if kernel not in forms]:
        raise NotUsable(
            f"{folder.path}: holds nothing for {', '.join(lacking)}, only for "
            f"{', '.join(folder.forms)}"
        )
    for lock in locks_of(forms):
        if folder.locks.get(lock.name) != digest(lock):
            raise NotUsable(
                f"{folder.path}: was made for another {lock.name} than this checkout has: take "
                "the checkout that it was made with, or run make wheels anew"
            )
    pins = pins_of(locks_of(forms))
    for name, about in folder.files.items():
        if about["for"] in pins or name == PYTHON:
            _check_file(folder.path / name, about)
    if missing := pins.keys() - {about["for"] for about in folder.files.values()}:
        raise NotUsable(f"{folder.path}: lacks {min(missing)}: run make wheels anew")


def _check_file(path: Path, about: dict[str, Any]) -> None:
    again = "copy the folder again (make wheels mends it, where there is a network)"
    try:
        size = path.stat().st_size
        if size != about["bytes"]:
            raise NotUsable(f"{path}: has {size} bytes, not {about['bytes']}: {again}")
        if digest(path) != about["sha256"]:
            raise NotUsable(f"{path}: is not the file that make wheels put there: {again}")
    except OSError as error:
        raise NotUsable(f"{path}: {error.strerror}: {again}") from None


def _glibc() -> str:
    """Of this machine, as "2.36"; empty where there is none."""
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")[2]
    except (OSError, ValueError):
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


# --- Using it --------------------------------------------------------------------------------


def go_offline(folder: Folder) -> None:
    """From here on pip and uv know no other place than the folder, whatever their settings say."""
    # As an address: pip takes a space, and uv a comma, for the end of a folder's name.
    address = folder.path.as_uri()
    os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=address)
    os.environ.update(UV_OFFLINE="1", UV_FIND_LINKS=address, UV_PYTHON_DOWNLOADS="never")


def lock_with_built(lock: Path, folder: Folder, to: Path) -> Path:
    """A lock that also takes the wheels that were built from its source archives.

    Their hashes are those of the index: no lock can know them beforehand.
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
    """Puts what was built beforehand where a build looks for it (`to`, .venvs/.wheels).

    pillow-simd's wheel only if it was built for this CPU's instruction set and loads here, where
    other versions of libjpeg may be: `python`, that of the tools, tries it.
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
    """Unpacks the folder's Python into `venvs/.python`, unless it is there. None if it has none."""
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
