"""The script for a machine with a GPU and no network: its limits, and what it carries."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from processes import ended

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE))

import gpu_run  # noqa: E402
import pack  # noqa: E402

FIGURE = {"figure": "ours", "unit": "images/s", "ours": 4.0, "rival": 2.0, "ratio": 2.0}
FIGURE |= {"rival_name": "the article's loop"}
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
        gpu_run.Step("ok", 20, [python(f"print({json.dumps(json.dumps(FIGURE))})")]),
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


def test_what_a_stopped_command_has_is_kept(tmp_path: Path) -> None:
    told, code = tmp_path / "told", "import gpu_run, sys; "
    code += "steps = [gpu_run.Step('first', 20, [[sys.executable, '-c', 'print(7)']]), "
    code += f"gpu_run.Step('second', 600, [{python(HANGS, told)!r}])]; "
    code += "gpu_run.steps = lambda *given: iter(steps); sys.exit(gpu_run.main(sys.argv[1:]))"
    command = [*python(code, tmp_path / "out"), "--small", "--minutes", "60"]
    env = os.environ | {"PYTHONPATH": str(HERE)}
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL) as running:
        until = time.monotonic() + 60
        while not (told.exists() and told.read_text()):
            assert time.monotonic() < until and running.poll() is None
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 1
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["state"] == "stopped"
    assert [line["step"] for line in summary["steps"]] == ["first"]
    assert all(ended(int(pid), seconds=10) for pid in told.read_text().split())


def test_an_unknown_step_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        gpu_run.main([str(tmp_path), "--only", "rivals,dreams"])
    assert "no step dreams: versions, images, pytorch-bf16" in capsys.readouterr().err


def test_what_is_carried_is_what_we_need_and_what_that_needs() -> None:
    carried = pack.wanted({"numpy", "pandas"})
    assert {"papermill", "nbclient", "nbformat", "ipykernel", "timm", "grain"} <= set(carried)
    assert not {"numpy", "pandas", "torch", "jax"} & set(carried)
    assert set(carried) <= pack.pins().keys()


def test_more_than_can_be_carried_is_refused(tmp_path: Path) -> None:
    (tmp_path / "small-1-py3-none-any.whl").write_bytes(b"7")
    assert pack.check(tmp_path).startswith("1 wheels, 0.0 MiB, and ")
    with (tmp_path / "large-1-py3-none-any.whl").open("wb") as file:
        file.truncate(pack.MOST_MIB << 20)
    with pytest.raises(SystemExit, match=r"more than 64; the largest are large-1"):
        pack.check(tmp_path)
