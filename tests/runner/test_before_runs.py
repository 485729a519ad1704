"""Kernels and images checked before a batch; of the GPUs only a driver is there, and is fake."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import fake_nvml
import pytest
from data_prep_tools import make_folder
from fake_nvml import A100, uuid
from runner_tools import BEGIN, FINISH, Suite, wait_for
from self_test_tools import HANGS, plant, self_tests

from helpers import paths, record
from helpers.frameworks import devices
from helpers.frameworks.capabilities import Gpu
from helpers.record import processes
from helpers.results import report
from helpers.runner import experiments, plans, preflight

RAISES = """
def gradients(*given):
    raise RuntimeError("CUDA error: no kernel image is available")
"""
FAILED = (
    "environment 'mxnet' failed its self-test: a step on 1 GPU: RuntimeError: CUDA error: no "
    "kernel image is available (self-test-mxnet-1x.log has the details)"
)


@pytest.fixture(name="gpus")
def gpus_fixture(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch in this process sees two GPUs; notebooks run in it too."""
    suite.without_kernels()
    seen = [Gpu(A100[0], (8, 0), "580.65.06", uuid(number)) for number in range(2)]
    monkeypatch.setattr(devices, "visible", lambda: seen)
    # For two devices' global batch.
    suite.data = make_folder(suite.folder / "more", patients=80, images=3, size=38)


def stand_in(folder: Path) -> dict[str, str]:
    """What a process is started with to see a GPU by its driver, and all of them."""
    (folder / "script").write_text(fake_nvml.machine(A100))
    return {**fake_nvml.environment(folder / "script"), "CUDA_VISIBLE_DEVICES": "0"}


def test_who_fails_is_skipped_with_the_reason_and_the_rest_continues_stand_in(suite: Suite) -> None:
    plant(suite.folder, "pytorch")
    plant(suite.folder, "mxnet", RAISES)
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH, kernel="pytorch")
    suite.notebook("MXNet_Gluon_MultiGPU", BEGIN, FINISH, kernel="mxnet", framework="MXNet Gluon")
    suite.notebook("Zoo_MultiGPU", BEGIN, FINISH, framework="Zoo")  # of a kernel nobody knows
    running = suite.start("--name", "b", env=stand_in(suite.folder))
    said, _ = running.communicate(timeout=400)
    assert running.returncode == 1 and "\x1b" not in said, said  # a log gets lines
    assert list(suite.states("b").values()) == ["finished", "skipped", "finished"]
    assert self_tests(suite.folder) == [f"pytorch {uuid(0)}", f"mxnet {uuid(0)}"]
    lines = [line.strip() for line in said.splitlines()]
    begun = next(number for number, line in enumerate(lines) if line.startswith("[1/3]"))
    assert lines.index(f"warning: {FAILED}") < begun, "all of them before the first run"

    bad = record.read(suite.run("b", "MXNet_Gluon_MultiGPU"))
    assert bad["state"] == "skipped" and bad["reason"] == FAILED

    batch = suite.folder / "runs" / "b"
    suite.to_the_end()
    for file in (batch / "self-test-mxnet-1x.log", report.write(batch)):
        assert "no kernel image is available" in file.read_text(encoding="utf-8")


@pytest.mark.usefixtures("gpus")
def test_each_kernel_once_for_each_set_of_gpus(suite: Suite) -> None:
    plant(suite.folder, "pytorch")
    for name in ("PyTorch_MultiGPU", "PyTorch_MultiGPU_DataParallel"):
        suite.notebook(name, BEGIN, FINISH, kernel="pytorch")
    assert suite.compare("--dry-run", "--devices", "1,2") == 0
    assert self_tests(suite.folder) == []
    assert suite.compare("--name", "b", "--devices", "1,2") == 0
    assert self_tests(suite.folder) == [f"pytorch {uuid(0)}", f"pytorch {uuid(0)},{uuid(1)}"]


@pytest.mark.usefixtures("gpus")
def test_simulated_nodes_need_a_gpu_for_each_device(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH, kernel="pytorch")
    assert suite.compare("--name", "b", "--nnodes", "2", "--devices", "2") == 2
    said = "PyTorch_MultiGPU on 2 nodes with 2 devices each: simulated nodes need 4 GPUs, and this"
    assert capsys.readouterr().err.startswith(f"error: {said} process sees 2; ask for fewer")


def test_a_signal_during_a_probe_leaves_nothing_and_goes_on_stand_in(
    suite: Suite, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(suite.folder, "pytorch", HANGS)
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH, kernel="pytorch")
    running = suite.start("--name", "b", env=stand_in(suite.folder), errors=subprocess.PIPE)
    pids = suite.folder / "planted" / "pids"
    wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGHUP):
        running.send_signal(number)
    said, errors = running.communicate(timeout=120)
    assert running.returncode == 130, said + errors
    kept = f"{paths.RUNS / 'b'} is kept, and the same command continues it"
    (line,) = errors.splitlines()  # by whichever signal Python saw first
    assert line.startswith("stopped by ") and line.endswith(f"; {kept}") and kept not in said
    assert not any(processes.lives(int(pid)) for pid in pids.read_text().split())
    assert suite.states("b") == {"PyTorch_MultiGPU": "waiting"}

    plant(suite.folder, "pytorch")
    data = suite.data
    request.getfixturevalue("gpus")
    assert suite.compare("--name", "b", "--data", str(data)) == 0
    assert "Resuming experiment b" in capsys.readouterr().out
    assert suite.states("b") == {"PyTorch_MultiGPU": "finished"}


def test_findings_that_no_part_can_measure_are_noted(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    plan = plans.make_plan(devices=[1], recipe="demo", data=str(suite.data), seeds=[0, 1])
    preflight.check(experiments.choose(plan, name="b", resume=None))
    said = capsys.readouterr().out
    assert said.count("note: test has no positive image of Atelectasis") == 1, said
    assert "so its AUC cannot be measured" in said
