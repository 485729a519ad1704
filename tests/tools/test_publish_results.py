"""What is published of an experiment, and what is never replaced."""

from __future__ import annotations

import json
from pathlib import Path

import publish_results
import pytest
import records

NOTEBOOK = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like docs/results, with a published batch."""
    (tmp_path / "results" / "cpu" / "demo").mkdir(parents=True)
    (tmp_path / "results" / "cpu" / "demo" / "report.html").touch()
    monkeypatch.setattr(publish_results, "RESULTS", tmp_path / "results")
    return tmp_path / "results"


@pytest.mark.parametrize("name", ["", "..", "cpu", "/", "cpu/../../x"])
def test_what_is_no_published_batch_is_not_replaced(name: str, results: Path) -> None:
    with pytest.raises(SystemExit, match="name "):
        publish_results.place(name)
    assert publish_results.place("cpu/demo") and publish_results.place("nvidia-h100")


def test_without_a_finished_run_the_published_one_stays(results: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no finished run in .*/mistyped"):
        publish_results.publish([tmp_path / "mistyped"], results / "cpu" / "demo")
    assert (results / "cpu" / "demo" / "report.html").exists()


def test_of_repeats_the_last_ones_notebook_is_published_and_one_of_each_precision(
    results: Path, tmp_path: Path
) -> None:
    """From what a machine with a GPU has left, without the names of its folders."""
    out = tmp_path / "out"
    for number, name in enumerate(["seed10", "seed9", "bf16"]):  # started in another order
        content = records.make()
        content["recipe"]["precision"] = "bf16" if name == "bf16" else "fp32"
        content["run"]["started"] = f"2026-11-21T01:00:0{number}+00:00"
        folder = records.save(out / "runs" / "all", content).rename(out / "runs" / "all" / name)
        (folder / "notebook.ipynb").write_text(NOTEBOOK, encoding="utf-8")
    summary = {"gpus": ["NVIDIA H100"], "folders": [str(out)], "steps": []}
    (out / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    (out / "summary.md").write_text(f"ran in {out}/logs", encoding="utf-8")
    target = results / "nvidia-h100"
    assert sorted(publish_results.publish_check(out, target)) == ["bf16", "seed10", "seed9"]
    shown = sorted(path.parent.name for path in target.glob("*/notebook.ipynb"))
    assert shown == ["bf16", "seed9"]
    assert (target / "summary.md").read_text(encoding="utf-8") == "ran in logs"
    (out / "summary.json").write_text(json.dumps(summary | {"gpus": []}), encoding="utf-8")
    with pytest.raises(SystemExit, match="no GPU trained"):
        publish_results.publish_check(out, target)
