"""The self-test from outside: what becomes of faults and of hangs; the command that runs it."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import fake_nvml
import numpy as np
import pytest
from fake_nvml import H100
from runner_tools import Suite, wait_for
from self_test_tools import HANGS, plant, self_tests

from helpers import paths
from helpers.__main__ import main
from helpers.frameworks.devices import Devices
from helpers.record import processes
from helpers.runner import self_test, shutdown
from helpers.runner.self_test import Outcome

TWO = Devices("cpu", ("CPU device 0", "CPU device 1"))


@pytest.fixture
def small(suite: Suite) -> Path:
    """A checkout in small, whose kernels the tests plant."""
    return suite.folder


def outcome_in(folder: Path) -> Outcome:
    return self_test.test("pytorch", TWO, [], log=folder / "log")


WRONG = """
right = gradients
def gradients(weights, images, targets, devices):
    CODE
"""
OFF = r"a step on 2 CPU devices: wrong result: the gradients are off by 0\.\d+"
FAULTS: dict[str, tuple[str, str]] = {
    "one device alone": (
        WRONG.replace("CODE", "return right(weights, images[:4], targets[:4], devices[:1])"),
        OFF,
    ),
    "sums": (
        WRONG.replace(
            "CODE",
            "loss, found = right(weights, images, targets, devices)\n"
            "    return loss, {name: 2 * array for name, array in found.items()}",
        ),
        OFF,
    ),
    "no number": (
        WRONG.replace("CODE", "return np.nan, right(weights, images, targets, devices)[1]"),
        "a step on 2 CPU devices: wrong result: the loss is off by nan",
    ),
    "raises": (
        WRONG.replace("CODE", r"raise RuntimeError('CUDA error: no kernel image\nmore')"),
        "a step on 2 CPU devices: RuntimeError: CUDA error: no kernel image",
    ),
    "dies": (
        WRONG.replace("CODE", "os.kill(os.getpid(), signal.SIGSEGV)"),
        "a step on 2 CPU devices: the process died: Segmentation fault",
    ),
    "no library": (
        "raise OSError('libcuda.so.1: cannot open shared object file')",
        "start: OSError: libcuda.so.1: cannot open shared object file",
    ),
    "ends": ("sys.exit(3)", "start: the process died: exit code 3"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_in_one_line(name: str, small: Path) -> None:
    fault, says = FAULTS[name]
    plant(small, "pytorch", fault)
    reason = outcome_in(small).reason
    assert reason is not None and re.fullmatch(says, reason), reason


def test_a_hang_ends_and_leaves_no_process(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = small / "planted" / "pids"

    def until_it_hangs() -> None:
        wait_for(lambda: told.exists() and len(told.read_text().split()) == 3)

    monkeypatch.setattr(shutdown, "check", until_it_hangs)
    monkeypatch.setattr(self_test, "LIMIT_SECONDS", 0.5)
    plant(small, "pytorch", HANGS)
    assert outcome_in(small).reason == "a step on 2 CPU devices: hung: not done after 0.5 s"
    assert not any(processes.lives(int(pid)) for pid in told.read_text().split())
    assert "in gradients" in (small / "log").read_text(encoding="utf-8")


def test_a_python_that_cannot_be_started_is_the_kernels_fault(small: Path) -> None:
    python = plant(small, "pytorch")
    python.write_bytes(b"\x7fELF of another machine")
    assert outcome_in(small).reason == f"it cannot be started: {python}: Exec format error"
    python.chmod(0o644)
    assert outcome_in(small).reason == f"it cannot be started: {python}: Permission denied"


def test_the_command_says_what_does_not_work(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(small, "pytorch", FAULTS["raises"][0])
    paths.VENVS.mkdir()
    (paths.VENVS / "mxnet.json").write_text('{"ok": false, "reason": "no compiler"}')
    assert main(["doctor", "--environments", "pytorch,mxnet", "--devices", "2"]) == 1
    assert capsys.readouterr().out.splitlines()[-3:] == [
        f"pytorch, 2 CPU devices: {FAULTS['raises'][1]}",
        "mxnet, 2 CPU devices: the environment of kernel 'mxnet' could not be built: no compiler",
        f"{small / 'runs' / '.self-test'} has the details",
    ]
    assert "no kernel image" in (small / "runs/.self-test/pytorch-2x.log").read_text("utf-8")


def test_the_command_on_gpus_stand_in(small: Path) -> None:
    plant(small, "pytorch")
    (small / "script").write_text(fake_nvml.machine(H100, H100))
    fake = fake_nvml.environment(small / "script") | {"CUDA_VISIBLE_DEVICES": "1,0"}
    words = ["-m", "helpers", "doctor", "--environments", "pytorch", "--devices", "auto,1"]
    env = {**os.environ, "PYTHONPATH": str(paths.ROOT), "ROSETTA_RUNS": str(small / "runs"), **fake}
    done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nGPUs    NVIDIA H100, NVIDIA H100\n" in done.stdout
    table = re.findall(r"^pytorch +(\d GPUs?) +\d+\.\d s$", done.stdout, re.M)
    assert table == ["2 GPUs", "1 GPU"] and done.stdout.endswith("Everything works.\n")
    said = f"pytorch: python {platform.python_version()}, small {np.__version__}"
    assert said in done.stdout and "testing pytorch on 2 GPUs" in done.stderr
    both = f"{fake_nvml.uuid(1)},{fake_nvml.uuid(0)}"
    assert self_tests(small) == [f"pytorch {both}", f"pytorch {fake_nvml.uuid(1)}"]
