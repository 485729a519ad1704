"""A process that a file names is alive, has ended, or cannot be judged from this host."""

import json
import subprocess
import sys

import pytest

from helpers.record import processes


def test_a_process_runs_until_it_has_ended_and_its_number_may_be_anothers() -> None:
    own = processes.own()
    assert processes.runs(own) is True
    assert processes.runs(own | {"process_started": own["process_started"] - 60}) is False
    code = "import json; from helpers.record import processes; print(json.dumps(processes.own()))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert processes.runs(json.loads(ended.stdout)) is False


@pytest.mark.parametrize("number", [1, 2**31 - 1])
def test_of_another_host_none_can_tell(number: int) -> None:
    """Whether this host has a process of that number or not."""
    assert processes.runs({"process": number, "process_started": 1.0, "host": "node7"}) is None
