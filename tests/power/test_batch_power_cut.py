"""A power cut in a batch: what was called finished stays so, and the rest is made."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from power_cut import cut, disk, mounted, why_not
from processes import own_temporary_folder

pytest.importorskip("nbformat")

from runner_tools import ROOT, Suite, images_fixture

from helpers import paths
from helpers.runner import experiments

__all__ = ["images_fixture"]

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "it can be done")

NAMES = ("PyTorch_MultiGPU", "PyTorch_MultiGPU_DataParallel", "TensorFlow_MultiGPU")
LONGEST = 12
"""Seconds that a batch of these three takes, more or less."""

WRITES = f"""
import json, os, sys
from pathlib import Path
sys.path[:0] = [{str(ROOT)!r}]
from helpers import paths
made = json.loads((Path(run).parents[2] / "made.json").read_text())
made["run"] |= {{"notebook": NAME, "process": os.getpid()}}
for state in ("running", "finished"):
    paths.write_atomically(Path(run) / "record.json", json.dumps(made | {{"state": state}}))"""


def finished(suite: Suite) -> dict[str, bytes]:
    """The records of the runs that are finished; none before the batch has begun."""
    if not (suite.folder / "runs" / "b" / "experiment.json").exists():
        return {}
    names = [name for name, state in suite.states("b").items() if state == "finished"]
    return {name: (suite.run("b", name) / "record.json").read_bytes() for name in names}


def power_off(running: subprocess.Popen[str]) -> None:
    """All processes at once, the kernels too, which have sessions of their own.

    They are suspended before they are killed. Otherwise one could start a kernel meanwhile, which
    would stay alive and keep the disk in use.
    """
    runner = psutil.Process(running.pid)
    family: set[psutil.Process] = set()
    while new := {runner, *runner.children(recursive=True)} - family:
        _each(new, psutil.Process.suspend)
        family |= new
    _each(family, psutil.Process.kill)
    running.wait()
    psutil.wait_procs(family)


def _each(processes: set[psutil.Process], do: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            do(process)


def test_a_cut_of_a_batch(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.randrange(10**6)
    rng = random.Random(seed)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with disk(tmp_path) as now:
        monkeypatch.setenv("JUPYTER_PATH", str(now.folder / "jupyter"))
        monkeypatch.setattr(paths, "RUNS", now.folder / "runs")
        suite = Suite(now.folder)
        suite.data = images
        for name in NAMES:
            suite.notebook(name, WRITES, framework=name.partition("_")[0])
        os.sync()  # the checkout has been there for long
        apart = {"TMPDIR": own_temporary_folder()}
        running = suite.start("--name", "b", output=subprocess.DEVNULL, env=apart)
        moment = rng.uniform(1, LONGEST)
        time.sleep(moment)
        power_off(running)
        image = cut(now, tmp_path / "after.img", names_first=rng.random() < 0.7)
    now.folder.rmdir()
    where = f"seed {seed}, cut after {moment:.1f} s"
    with mounted(image, now.folder):
        kept = finished(suite)
        assert all(json.loads(text)["state"] == "finished" for text in kept.values()), where
        begun = (suite.folder / "runs" / "b" / "experiment.json").exists()
        if not (begun and experiments.load("b").plan.ended):  # else its name is taken
            running = suite.start("--name", "b")
            said, _ = running.communicate(timeout=300)
            assert running.returncode == 0, said
        assert finished(suite).keys() == set(NAMES), where
        assert kept.items() <= finished(suite).items(), where
