"""Whether a notebook's training can be killed, resumed, and end as a whole one."""

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import notebook_program
import numpy as np
import psutil
from processes import own_temporary_folder

from helpers import record
from helpers.networks import weights
from helpers.training import checkpoint

EPOCHS = 12
"""They are so short that on a busy machine three end before a kill."""
SECONDS = 300
ATTEMPTS = 5
SAID = "said.txt"


def assert_own_resumes(notebook: str, folder: Path, recipe: Path) -> None:
    """Killed at a random step and resumed, a run has the losses and weights of a whole one.

    To the last bit.
    """
    whole = folder / "whole"
    start = partial(_start, notebook, recipe=recipe)
    _end(start(whole, resume=False), whole)
    for attempt in range(1, ATTEMPTS + 1):  # on a busy machine a run ends before it is killed
        killed = folder / f"killed {attempt}"
        epochs = _kill_after_a_checkpoint(start(killed, resume=False), killed)
        if epochs < EPOCHS:
            break
    assert 1 <= epochs < EPOCHS, "it was to be killed between its first and its last epoch"
    said = _end(start(killed, resume=True), killed)
    assert f"Resumed after epoch {epochs} of {EPOCHS}" in said

    rows, expected = (record.read(run)["epochs"] for run in (killed, whole))
    assert [row["epoch"] for row in rows] == [row["epoch"] for row in expected]
    for row, other in zip(rows, expected, strict=True):
        for metric in ("train_loss", "valid_loss", "valid_top1", "learning_rate"):
            np.testing.assert_allclose(row[metric], other[metric], rtol=1e-3, err_msg=f"{metric}")
    assert record.read(killed)["checkpoint"]["resumed_after"] == epochs
    found, wanted = (weights.load(run / "weights.safetensors") for run in (killed, whole))
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[name], array) for name, array in wanted.items())


def _start(notebook: str, folder: Path, *, resume: bool, recipe: Path) -> "subprocess.Popen[str]":
    program = sys.executable, notebook_program.__file__
    command = [*program, notebook, str(folder), str(int(resume)), str(recipe), str(EPOCHS)]
    folder.mkdir(exist_ok=True)
    environment = os.environ | {"TMPDIR": own_temporary_folder()}
    with (folder / SAID).open("w") as out:  # a pipe would stay open as long as any grandchild
        how: Any = {"stderr": subprocess.STDOUT, "start_new_session": True, "env": environment}
        return subprocess.Popen(command, stdout=out, text=True, **how)


def _end(process: "subprocess.Popen[str]", folder: Path) -> str:
    code = process.wait(SECONDS)
    said = (folder / SAID).read_text()
    assert code == 0, said[-3000:]
    return said


def _kill_after_a_checkpoint(process: "subprocess.Popen[str]", folder: Path) -> int:
    """Kill -9 somewhere in an epoch; the number of epochs in the checkpoint that is left."""
    wanted, deadline = random.randint(1, EPOCHS - 2), time.monotonic() + SECONDS
    while checkpoint.epochs_in(folder) < wanted:
        assert process.poll() is None, (folder / SAID).read_text()[-3000:]
        assert time.monotonic() < deadline, "no checkpoint came"
        time.sleep(0.01)
    time.sleep(random.uniform(0, 0.1))
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    psutil.wait_procs(family, 30)  # replicas end a moment later, and may end an epoch in it
    return checkpoint.epochs_in(folder)
