"""Commands whose output goes to a program that stops reading, as ``head``, or to a full disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from data_prep_tools import make_folder

from helpers import paths


@pytest.mark.parametrize(
    "command",
    ["helpers run --help", "gpumon devices", "data_prep --version"],
)
@pytest.mark.parametrize("buffered", [True, False])
def test_a_command_ends_quietly_when_its_reader_has_seen_enough(
    command: str, buffered: bool
) -> None:
    """An unbuffered line that cannot be printed is no error to argparse itself."""
    ours, theirs = os.pipe()
    os.close(ours)
    env = {**os.environ, "PYTHONPATH": str(paths.ROOT), "PYTHONUNBUFFERED": "" if buffered else "1"}
    try:
        words = [sys.executable, "-m", *command.split()]
        done = subprocess.run(words, stdout=theirs, stderr=subprocess.PIPE, text=True, env=env)
    finally:
        os.close(theirs)
    assert done.stderr == ""
    assert done.returncode == 141 or (done.returncode == 0 and not buffered)


@pytest.mark.parametrize("command", ["gpumon devices", "data_prep verify --quick set"])
def test_what_cannot_be_printed_is_one_line(tmp_path: Path, command: str) -> None:
    make_folder(tmp_path / "set")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", *command.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(paths.ROOT)},
        )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "standard output: No space left on device" in done.stderr
