"""Whether a process that a file names still runs: alive, ended, or nobody here can tell."""

import json
import subprocess
import sys

import pytest

from helpers.launch import processes


def test_this_process_runs() -> None:
    assert processes.runs(processes.own()) is True


def test_one_that_has_ended_does_not() -> None:
    code = "import json; from helpers.launch import processes; print(json.dumps(processes.own()))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert processes.runs(json.loads(said.stdout)) is False


def test_one_that_has_only_got_the_number_is_another() -> None:
    said = processes.own()
    assert processes.runs(said | {"process_started": said["process_started"] - 60}) is False


@pytest.mark.parametrize("number", [1, 2**31 - 1])
def test_of_another_host_none_can_tell(number: int) -> None:
    """Whether this host has a process of that number or not."""
    assert processes.runs({"process": number, "process_started": 1.0, "host": "node7"}) is None
