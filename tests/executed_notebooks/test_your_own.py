"""docs/your-own.md, word for word: custom networks, images of five classes, to a report."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import executed_batch
import pytest

from helpers import paths, record
from helpers.runner import experiments

PAGE = paths.ROOT / "docs" / "your-own.md"
BATCH = "test-your-own"
TRAINED = {"PyTorch_MultiGPU", "PyTorch_MultiGPU_DataParallel", "MXNet_Gluon_MultiGPU"}


def fences(kind: str) -> list[tuple[str, str]]:
    """The page's blocks of a kind, each with its title."""
    found = re.findall(
        r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S
    )
    return [(title, text) for language, title, text in found if language == kind]


def run(line: str, folder: Path) -> str:
    """A line of the page; ``--name`` is the test's own, for runs/ is the checkout's."""
    words = line.replace("--name mine", f"--name {BATCH}").split()
    words = [str(paths.ROOT / word) if word.startswith(".venvs") else word for word in words]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    # TensorFlow, Keras and Chainer are skipped: compare says so by 1.
    wanted = (0,) if "--name" not in words else (1,)
    assert done.returncode in wanted, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """What each of the page's commands printed, in a folder of its own."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "my-shapes").mkdir()
    for kind in ("python", "toml"):
        for title, text in fences(kind):
            (folder / "my-shapes" / title).write_text(text, encoding="utf-8")
    lines = [line for _, text in fences("console") for line in text.splitlines()]
    with executed_batch.folder_of(BATCH):
        yield [run(line, folder) for line in lines]


def test_the_plan_names_the_code_and_who_is_skipped(said: list[str]) -> None:
    plan = said[1]
    shown = re.search(r"mine\.py, SHA-256 \w+", fences("text")[0][1])
    assert shown and shown[0] in plan
    assert "no network of its own for tensorflow" in plan


def test_they_train_and_tell_the_classes_apart(said: list[str]) -> None:
    batch = experiments.load(BATCH)
    states = {run.notebook: batch.record_of(run)["state"] for run in batch.runs}
    assert {name for name, state in states.items() if state == "finished"} == TRAINED
    assert set(states.values()) == {"finished", "skipped"}
    for name in TRAINED:
        found: Any = record.read(paths.RUNS / BATCH / f"{name}-2x")
        assert found["recipe"]["network"] == "own" and found["recipe"]["task"] == "multiclass"
        assert found["data"]["classes"] == ["square", "ring", "cross", "bar", "disc"]
        checks = {check["check"]: check for check in found["fairness"]["checks"]}
        assert not [name for name, check in checks.items() if check["verdict"] == "fail"]
        assert "custom network" in checks["logits, evaluation"]["reason"]
        assert checks["gradients, n devices / one"]["verdict"] == "pass"
        assert found["test"]["top1_low"] > 0.2, "no better than chance"
    page = (paths.RUNS / BATCH / "report.html").read_text(encoding="utf-8")
    assert "top-1" in page and "disc" in page
    assert "AUC" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)
