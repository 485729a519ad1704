"""A batch and its recipe: the same from beginning to end."""

from pathlib import Path
from typing import Any

import pytest

from helpers import __main__ as command
from helpers.errors import UserError
from helpers.runner import experiments, plans, preflight
from helpers.runner.plans import Plan

TEXT = 'recipe = "demo"\n[train]\nwarmup_epochs = 0.5\n[model]\nmxnet = "mine.py:net"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text("raise SystemExit('run')\ndef net(outputs): ...\n")
    path = tmp_path / "mine.toml"
    path.write_text(TEXT)
    return path


def plan_of(file: Path, **choices: Any) -> Plan:
    return plans.make_plan(devices=[1], recipe=str(file), **choices)


def test_a_plan_has_the_whole_path_and_the_digests(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    plan = plan_of(Path("mine.toml"))
    assert plan.recipe == str(file) and set(plan.recipe_digests) == {"mine.toml", "mine.py"}
    assert plan.parameters()["recipe"] == str(file)
    assert plan.parameters()["warmup_epochs"] == "default", "the recipe's own, then"
    assert plans.make_plan(devices=[1]).recipe_digests == {}, "auto: each run chooses"


@pytest.mark.parametrize("name", ["mine.toml", "mine.py"])
def test_a_recipe_that_was_changed_is_refused(file: Path, name: str) -> None:
    plan = plan_of(file)
    assert preflight.recipe_changed(plan) is None
    with (file.parent / name).open("a") as opened:
        opened.write("# a remark\n" if name == "mine.py" else "[demo]\nepochs = 9\n")
    said = f"{name} was changed since the experiment began"
    with pytest.raises(UserError, match=f"^{said}: put it back"):
        preflight.check(experiments.Experiment(file.parent / "none", plan))
    assert preflight.recipe_problem(plan, plan.runs[0].notebook) == said
    file.unlink()
    assert "No such file" in str(preflight.recipe_problem(plan, plan.runs[0].notebook))


def test_the_plan_says_beforehand_what_will_be_skipped(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["run", "--recipe", str(file), "--devices", "1", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert f"  recipe {file}, SHA-256 " in shown
    assert f"  custom code {file.parent}/mine.py, SHA-256 " in shown
    lines = shown.splitlines()
    about = {line.split()[0]: line for line in lines if "_MultiGPU" in line}
    said = "will be skipped: the recipe mine has no network of its own for pytorch, only for mxnet"
    assert said in about["PyTorch_MultiGPU_DataParallel"] and len(about) > 2
    assert "skipped" not in about["MXNet_Gluon_MultiGPU"]
