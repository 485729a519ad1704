"""The runner in odd places: folders with odd names, old locales, narrow terminals, leftovers."""

from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runner_tools import BEGIN, FINISH, Suite

from helpers import paths
from helpers.runner import experiments, hangs, plans

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
    experiments.choose(plan, name="b", resume=None).open()
    assert experiments.load("b").plan.data == str(data)
    assert experiments.choose(plan, name="b", resume=None).resumed  # the same command goes on


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
