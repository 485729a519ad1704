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
from probe_tools import HANGS, plant, probed
from runner_tools import wait_for

from helpers import paths
from helpers.__main__ import main
from helpers.frameworks.devices import Devices
from helpers.launch import processes
from helpers.runner import self_test, shutdown
from helpers.runner.self_test import Outcome

TWO = Devices("cpu", ("CPU device 0", "CPU device 1"))


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in small, whose kernels the tests plant."""
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(paths, "VENVS", tmp_path / "venvs")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path


def outcome_in(folder: Path) -> Outcome:
    return self_test.test("pytorch", TWO, [], log=folder / "log")


# --- What becomes of a fault ------------------------------------------------------------------


def test_all_is_well_and_says_what_was_tested(small: Path) -> None:
    plant(small, "pytorch")
    found = outcome_in(small)
    assert found.reason is None and found.seconds > 0
    assert found.versions["small"] == np.__version__


WRONG = """
right = gradients
def gradients(weights, images, targets, devices):
    CODE
"""
FAULTS: dict[str, tuple[str, str]] = {
    "one device alone": (
        WRONG.replace("CODE", "return right(weights, images[:4], targets[:4], devices[:1])"),
        r"a step on 2 CPU devices: wrong result: the gradients are off by 0\.\d+",
    ),
    "sums": (
        WRONG.replace(
            "CODE",
            "loss, found = right(weights, images, targets, devices)\n"
            "    return loss, {name: 2 * array for name, array in found.items()}",
        ),
        r"a step on 2 CPU devices: wrong result: the gradients are off by 0\.\d+",
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


# --- The command ------------------------------------------------------------------------------


def test_the_command_prints_a_table(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kernel in ("pytorch", "mxnet"):
        plant(small, kernel)
    assert main(["doctor", "--environments", "mxnet,pytorch", "--devices", "2,1"]) == 0
    shown = capsys.readouterr()
    rows = [re.split("  +", line) for line in shown.out.splitlines()]
    heading = rows.index(["environment", "devices", "check"])
    table = rows[heading + 1 : heading + 5]
    assert [row[:2] for row in table] == [
        [kernel, on] for kernel in ("mxnet", "pytorch") for on in ("2 CPU devices", "1 CPU device")
    ]
    assert all(re.fullmatch(r"\d+\.\d s", row[2]) for row in table)
    assert f"mxnet: python {platform.python_version()}, small {np.__version__}" in shown.out
    assert shown.out.endswith("Everything works.\n")
    assert "testing mxnet on 2 CPU devices" in shown.err


def test_the_command_says_what_does_not_work(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(small, "pytorch", FAULTS["raises"][0])
    paths.VENVS.mkdir()
    (paths.VENVS / "mxnet.json").write_text('{"ok": false, "reason": "no compiler"}')
    assert main(["doctor", "--environments", "pytorch,mxnet", "--devices", "2"]) == 1
    *_, pytorch, mxnet, logs = capsys.readouterr().out.splitlines()
    assert pytorch == f"pytorch, 2 CPU devices: {FAULTS['raises'][1]}"
    why = "the environment of kernel 'mxnet' could not be built: no compiler"
    assert mxnet == f"mxnet, 2 CPU devices: {why}"
    assert logs == f"{small / 'runs' / '.self-test'} has the details"
    assert "no kernel image" in (small / "runs/.self-test/pytorch-2x.log").read_text("utf-8")


def test_the_command_on_gpus_stand_in(small: Path) -> None:
    plant(small, "pytorch")
    (small / "script").write_text(fake_nvml.machine(H100, H100))
    fake = fake_nvml.environment(small / "script") | {"CUDA_VISIBLE_DEVICES": "1,0"}
    code = (
        "import sys; from pathlib import Path; from helpers import paths\n"
        f"paths.RUNS = Path({str(small / 'runs')!r})\n"
        "from helpers.__main__ import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "doctor", "--environments", "pytorch", "--devices", "auto,1"],
        env={**os.environ, "PYTHONPATH": str(paths.ROOT), **fake},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nGPUs    NVIDIA H100, NVIDIA H100\n" in done.stdout
    assert re.findall(r"^pytorch +(\d GPUs?) +\d", done.stdout, re.M) == ["2 GPUs", "1 GPU"]
    both = f"{fake_nvml.uuid(1)},{fake_nvml.uuid(0)}"
    assert probed(small) == [f"pytorch {both}", f"pytorch {fake_nvml.uuid(1)}"]
