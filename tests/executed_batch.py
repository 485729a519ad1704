"""A batch that a test runs by the command that users type, under the checkout's own runs/."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers import paths


@contextmanager
def folder_of(name: str) -> Iterator[Path]:
    """The batch's folder, not there yet; afterwards it is gone, and ``latest`` as it was."""
    folder, latest = paths.RUNS / name, paths.RUNS / "latest"
    shutil.rmtree(folder, ignore_errors=True)  # of a test that was killed
    before = latest.readlink() if latest.is_symlink() else None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        latest.unlink(missing_ok=True)
        if before is not None:
            latest.symlink_to(before)


@contextmanager
def finished(name: str, *choices: str | Path) -> Iterator[Path]:
    """The folder of a batch that ``rosetta run`` has run with these options."""
    with folder_of(name) as folder:
        in_lab("rosetta", "run", "--name", name, *choices)
        yield folder


def in_lab(program: str, *words: str | Path) -> None:
    """Run a program of the lab's environment, which has to end with 0."""
    command = [paths.VENVS / "lab" / "bin" / program, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
