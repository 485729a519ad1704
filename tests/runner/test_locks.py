"""Who works on an experiment: one command at a time."""

import pytest
from runner_tools import Suite

from helpers.errors import UserError
from helpers.runner import locks


@pytest.mark.usefixtures("suite")
def test_on_one_machine_two_outside_of_jobs_would_measure_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = "another rosetta run is active on this machine; wait"
    with locks.only_one(), pytest.raises(UserError, match=said), locks.only_one():
        pass
    with locks.only_one():
        monkeypatch.setenv("SLURM_JOB_ID", "2")
        with locks.only_one():
            pass


def test_of_one_name_there_is_one(suite: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    suite.notebook("PyTorch_MultiGPU")
    with locks.held("one", "held by the test"):
        assert suite.compare("--name", "one") == 2
    line = capsys.readouterr().err
    assert line.startswith("error: another rosetta run works on the experiment 'one'; wait for it")
    assert "give this one another --name" in line
