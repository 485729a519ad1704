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
    assert processes.runs(said | {"process_ticks": said["process_ticks"] - 1}) is False


@pytest.mark.parametrize("number", [1, 2**31 - 1])
def test_of_another_host_none_can_tell(number: int) -> None:
    """Whether this host has a process of that number or not."""
    there = {"process": number, "process_ticks": 1, "host": "node7"}
    assert processes.runs(there | {"process_space": "another-boot pid:[4026531836]"}) is None
    assert processes.runs(there) is None, "as older versions wrote it"


def test_of_another_container_of_this_machine_none_can_tell() -> None:
    said = processes.own()
    boot = processes.boot(said["process_space"])
    assert processes.runs(said | {"process_space": f"{boot} pid:[1]"}) is None


def test_none_outlives_the_machines_next_start() -> None:
    said = processes.own()
    assert processes.runs(said | {"process_space": "another-boot pid:[4026531836]"}) is False


def test_what_older_versions_wrote_of_this_host_is_told_by_its_number() -> None:
    said = processes.own()
    del said["process_space"], said["process_ticks"]
    assert processes.runs(said) is True
    assert processes.runs(said | {"process": 2**31 - 1}) is False
