"""A batch that a test runs by the command that users type, among the tests' own runs."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers import paths


@contextmanager
def folder_of(name: str) -> Iterator[Path]:
    """The batch's folder, not there yet; afterwards it is gone."""
    folder = paths.RUNS / name
    shutil.rmtree(folder, ignore_errors=True)  # of a test that was killed
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def finished(name: str, *choices: str | Path) -> Iterator[Path]:
    """The folder of a batch that ``rosetta run`` has run with these options."""
    with folder_of(name) as folder:
        in_lab("rosetta", "run", "--name", name, *choices)
        yield folder


def in_lab(program: str, *words: str | Path, **variables: str) -> None:
    """Run a program of the lab's environment, which has to end with 0."""
    command = [paths.VENVS / "lab" / "bin" / program, *words]
    env = os.environ | variables
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=paths.ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
