"""Ranks on two nodes are killed under `compare`: one line, nobody left, and on it goes.

Few times, for each is a batch from its start to its report; `tests/kernels/test_ranks.py` kills
many ranks more cheaply.
"""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from data_prep import generate_nih, resize_folder
from helpers import paths, record
from helpers.errors import UserError
from helpers.frameworks import rank_info

NOTEBOOK = "PyTorch_MultiGPU"
KILLS = 2
SOON = 15.0
"""Seconds in which a run's ranks have ended."""
CAUSE = re.compile(r"rank [01] on \S+: killed \(signal 9; out of memory\?\)")
NET = """
from torch import nn


def net(outputs):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, outputs),
    )
"""
RECIPE = """
recipe = "demo"
[model]
pytorch = "mine.py:net"
[train]
batch_size = 8
epochs = 3
"""
NAMES = "test-rank-kills"

pytestmark = pytest.mark.slow


@pytest.fixture(name="data", scope="module")
def data_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shallow network and few images: three epochs of some steps."""
    folder = tmp_path_factory.mktemp("few")
    (folder / "mine.py").write_text(NET)
    (folder / "mine.toml").write_text(RECIPE)
    generate_nih(folder / "large", images=200, size=64, progress=False)
    resize_folder(folder / "large", folder / "data", size=38, progress=False)
    return folder / "data"


@pytest.fixture(autouse=True)
def _runs_are_as_before() -> Iterator[None]:
    yield
    for folder in paths.RUNS.glob(f"{NAMES}-*"):
        shutil.rmtree(folder)


def compare(*words: str) -> subprocess.Popen[str]:
    command = [str(paths.VENVS / "lab" / "bin" / "python"), "-m", "helpers", *words]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=paths.ROOT,
        text=True,
    )


def begin(name: str, data: Path) -> subprocess.Popen[str]:
    choices = ["--nnodes", "2", "--devices", "1", "--data", str(data)]
    choices += ["--recipe", str(data.parent / "mine.toml")]
    return compare("--notebooks", NOTEBOOK, *choices, "--name", name)


def weights(name: str) -> str:
    """The digest of those that a run has saved."""
    file = paths.RUNS / name / f"{NOTEBOOK}-2n-1x" / "weights.safetensors"
    return hashlib.sha256(file.read_bytes()).hexdigest()


def finished(name: str) -> bool:
    """Whether a run's record says so: it may still be tidying up."""
    try:
        return bool(record.read(paths.RUNS / name / f"{NOTEBOOK}-2n-1x")["state"] == "finished")
    except UserError:
        return False


def started_for(name: str) -> list[psutil.Process]:
    """The processes that carry the mark of a run's ranks: launcher, ranks, workers."""
    found = []
    for process in psutil.process_iter():
        try:
            mark = process.environ().get(rank_info.VARIABLE, "")
        except (psutil.Error, OSError):
            continue
        if f"/{name}/" in mark and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def ranks_of(name: str) -> list[psutil.Process]:
    """The ranks themselves: children of what the launcher started, which has the same command."""
    parents, found = {}, {}
    for each in started_for(name):
        with suppress(psutil.Error):
            if "helpers.launch.rank" in " ".join(each.cmdline()):
                parents[each.pid], found[each.pid] = each.ppid(), each
    return [
        each
        for process, each in found.items()
        if (above := parents[process]) in parents and parents[above] not in parents
    ]


def test_ranks_killed_under_compare(data: Path) -> None:
    whole = f"{NAMES}-whole"
    began = time.monotonic()
    said, _ = (undisturbed := begin(whole, data)).communicate(timeout=600)
    assert undisturbed.returncode == 0, said
    lasts = time.monotonic() - began
    draws = random.Random(seed := random.randrange(10**6))
    print(f"seed {seed}; an undisturbed run takes {lasts:.0f} s")
    for number in range(KILLS):
        name = f"{NAMES}-{number}"
        running = begin(name, data)
        while not ranks_of(name) and running.poll() is None:
            time.sleep(0.05)
        time.sleep(draws.uniform(0, 0.5 * lasts))
        if (alive := ranks_of(name)) and not finished(name):
            victim = draws.choice(alive)
            victim.kill()
            killed = time.monotonic()
            while started_for(name):
                assert time.monotonic() - killed < SOON, f"kill {number}, seed {seed}"
                time.sleep(0.1)
            said, _ = running.communicate(timeout=300)
            assert running.returncode == 1 and CAUSE.search(said), f"seed {seed}: {said}"
            again = compare("--resume", name)
            said, _ = again.communicate(timeout=600)
            assert again.returncode == 0, f"kill {number}, seed {seed}: {said}"
        else:
            running.communicate(timeout=300)
        assert weights(name) == weights(whole), f"kill {number}, seed {seed}"
        assert not started_for(name)
