"""Writes that fail: on a disk that is full, or on one that is read-only.

A test of a writer, with :func:`alone`, runs in a process of its own, under a small library between
Python and libc. It counts what the writer writes, then lets such a call fail: tests/test_faults.py.
:func:`disk` is one that really is small or read-only, where the machine allows mounting.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("faults.c")
_LOADED = "FAULTS_LIBRARY"


def alone(test: Callable[..., None]) -> Callable[..., None]:
    """The test, in a process with the library; it takes fixtures, but no parameters.

    It is skipped without a C compiler.
    """
    if _LOADED in os.environ:
        return test

    def again(request: pytest.FixtureRequest) -> None:
        library = str(_library())
        command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
        ran = subprocess.run(
            [*command, f"{request.path}::{request.node.name}"],
            env={**os.environ, _LOADED: library, "LD_PRELOAD": library},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            pytest.fail(f"{ran.stdout}\n{ran.stderr}", pytrace=False)

    again.__name__, again.__doc__ = test.__name__, test.__doc__
    return again


def count(work: Callable[[], object], *, below: Path) -> int:
    """How many calls ``work`` makes that write below a folder."""
    _loaded().fault_arm(os.fsencode(below), 0, 0)
    try:
        work()
    finally:
        found: int = _loaded().fault_disarm()
    return found


@contextmanager
def failing(at: int, error: int, *, below: Path) -> Iterator[None]:
    """Inside, call number ``at`` below a folder, from 1, fails with ``error``."""
    _loaded().fault_arm(os.fsencode(below), at, error)
    try:
        yield
    finally:
        _loaded().fault_disarm()


@contextmanager
def disk(folder: Path, *options: str) -> Iterator[Path]:
    """A disk of its own at ``folder``, ``size=1m`` or ``ro``; the test is skipped without."""
    folder.mkdir(exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@functools.cache
def _loaded() -> Any:
    return ctypes.CDLL(os.environ[_LOADED])


@functools.cache
def _library() -> Path:
    """The compiled library; the test is skipped without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler here, so no write can be made to fail")
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = folder / "faults.so"
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(made)]
    subprocess.run([*command, str(SOURCE), "-ldl"], check=True)
    return made
