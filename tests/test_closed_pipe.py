"""Commands whose output goes to a program that stops reading, as ``head`` does."""

import os
import subprocess
import sys

import pytest

from helpers import paths


@pytest.mark.parametrize(
    "command",
    [
        "helpers run --help",
        "gpumon devices",
        "data_prep --version",
    ],
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
