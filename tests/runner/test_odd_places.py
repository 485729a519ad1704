"""The runner in odd places: folders with odd names, old locales, narrow terminals, leftovers."""

import os
import subprocess
import sys
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from runner_tools import BEGIN, FINISH, Suite, images_fixture, suite_fixture

from helpers import paths
from helpers.launch import environment_variables
from helpers.runner import experiments, hangs, plans

__all__ = ["images_fixture", "suite_fixture"]

ONE = "PyTorch_MultiGPU"


@pytest.mark.parametrize("name", ["全角\u3000空白", "two\nlines"])
def test_a_batch_on_data_in_a_folder_with_an_odd_name_is_gone_on_with(
    suite: Suite, name: str
) -> None:
    suite.notebook(ONE, BEGIN, FINISH)
    data = suite.folder / name
    data.symlink_to(suite.data)
    plan = plans.make_plan(devices=[1], recipe="demo", data=str(data))
    plan.data = str(data)  # the link itself, for resolving it would give the plain name
    batch = experiments.choose(plan, name="b", resume=None)
    batch.open()
    again = experiments.load("b")
    assert again.plan.data == str(data)
    assert experiments.choose(plan, name="b", resume=None).resumed  # the same command goes on


@pytest.mark.parametrize("name", ["x" * 100, "job#7"])
def test_replicas_meet_whatever_the_temporary_folder_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As in a kernel: clusters' names for a job's folder are long."""
    folder = tmp_path / name
    folder.mkdir()
    code = (
        "import os\nfrom helpers.frameworks import replicas\n"
        "def where(rank): return os.environ[replicas.RENDEZVOUS]\n"
        "if __name__ == '__main__': print(replicas.run(where, 1)[0])\n"
    )
    (tmp_path / "meet.py").write_text(code)
    env = environment_variables.for_a_kernel({**os.environ, "TMPDIR": str(folder)})
    command = [sys.executable, str(tmp_path / "meet.py")]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    address = urlsplit(ended.stdout.strip())
    assert Path(address.path).name == "rendezvous" and not address.query + address.fragment
    near = environment_variables.for_a_kernel({"TMPDIR": "/scratch/job 7"})
    assert near["TMPDIR"] == "/scratch/job 7"


def test_runs_that_is_no_folder(suite: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    suite.notebook(ONE, BEGIN, FINISH)
    paths.RUNS.symlink_to("nowhere")
    assert suite.compare() == 2
    assert "a file, or a link that leads nowhere" in capsys.readouterr().err


def test_a_stopped_runner_does_not_take_its_runs_for_hung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-Z, a paused container: hours pass in which nobody has looked."""
    looks = chain([0.0], repeat(7200.0))
    clock: Any = SimpleNamespace(monotonic=lambda: next(looks))
    monkeypatch.setattr(hangs, "time", clock)
    watch = hangs.Watch(tmp_path, 0.05)
    for _ in range(4):
        watch.look()
