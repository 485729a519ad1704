"""The script for a machine with a GPU and no network: its limits, and what it carries."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import pytest
from processes import ended

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))

import gpu_run  # noqa: E402
import pack  # noqa: E402

RESULT = {"result": "ours", "unit": "images/s", "ours": 4.0, "rival": 2.0, "ratio": 2.0}
RESULT |= {"rival_name": "the article's loop"}
HANGS = """
import os, pathlib, subprocess, sys, time
child = subprocess.Popen(["sleep", "600"])
pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()} {child.pid}")
time.sleep(600)
"""


def python(code: str, *words: str | Path) -> list[str]:
    return [sys.executable, "-c", code, *map(str, words)]


def test_no_step_stops_another_and_what_hangs_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, keep, told = tmp_path / "out", tmp_path / "keep", tmp_path / "told"
    steps = [
        gpu_run.Step("fails", 20, [python("raise ValueError('too dark')")]),
        gpu_run.Step("hangs", 4, [python(HANGS, told)]),
        gpu_run.Step("lacks", 20, [], "no such framework"),
        gpu_run.Step("long", 3000, [python("print('never')")]),
        gpu_run.Step("ok", 20, [python(f"print({json.dumps(json.dumps(RESULT))})")]),
    ]
    monkeypatch.setattr(gpu_run, "steps", lambda *given: iter(steps))
    assert gpu_run.main([str(out), "--small", "--keep", str(keep)]) == 1
    summary = json.loads((out / "summary.json").read_text())
    assert [(line["step"], line["outcome"]) for line in summary["steps"]] == [
        ("fails", "failed"),
        ("hangs", "failed"),
        ("lacks", "skipped"),
        ("long", "skipped"),
        ("ok", "ok"),
    ]
    said = [line["said"] for line in summary["steps"]]
    assert said[0] == "ValueError: too dark" and said[1] == "ran past its 4 s"
    row = "| ours | 4 images/s | the article's loop: 2 | 2.000 |"
    assert row in (out / "summary.md").read_text()
    assert all(ended(int(pid), seconds=10) for pid in told.read_text().split())
    assert not (out / "work").exists()
    with tarfile.open(next(keep.glob("results.*"))) as carried:
        assert {"./summary.md", "./logs/hangs.log"} <= set(carried.getnames())


def test_what_is_carried_is_what_we_need_and_what_that_needs() -> None:
    carried = pack.wanted({"numpy", "pandas"})
    assert {"papermill", "nbclient", "nbformat", "ipykernel", "timm", "grain"} <= set(carried)
    assert not {"numpy", "pandas", "torch", "jax"} & set(carried)
    assert set(carried) <= pack.pins().keys()
