"""Kernels and images checked before a batch; of the GPUs only a driver is there, and is fake."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import fake_nvml
import pytest

pytest.importorskip("papermill")

from fake_nvml import A100, uuid
from probe_tools import HANGS, plant, probed
from runner_tools import (
    BEGIN,
    FINISH,
    WAIT,
    Suite,
    images_fixture,
    suite_fixture,
    wait_for,
    write_images,
)

from helpers import paths, record
from helpers.launch import processes
from helpers.runner import experiments, plans, preflight

__all__ = ["images_fixture", "suite_fixture"]

RAISES = """
def through_layer(layer, arrays, device):
    raise RuntimeError("CUDA error: no kernel image is available")
"""
FAILED = (
    "environment 'mxnet' failed its self-test: convolution on device 0 (NVIDIA A100-SXM4-40GB): "
    "RuntimeError: CUDA error: no kernel image is available "
    "(self-test-mxnet-1x.log has the details)"
)


def gpus(folder: Path, count: int) -> dict[str, str]:
    """What a process is started with to see so many GPUs, and all of them."""
    (folder / "script").write_text(fake_nvml.machine(*[A100] * count))
    seen = ",".join(map(str, range(count)))
    return {**fake_nvml.environment(folder / "script"), "CUDA_VISIBLE_DEVICES": seen}


def compare(suite: Suite, env: Mapping[str, str], *words: str, code: int = 0) -> str:
    running = suite.start(*words, env=env)
    said, _ = running.communicate(timeout=400)
    assert running.returncode == code, said
    return said


def test_who_fails_is_skipped_with_the_reason_and_the_rest_continues_stand_in(suite: Suite) -> None:
    plant(suite.folder, "pytorch")
    plant(suite.folder, "mxnet", RAISES)
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH, kernel="pytorch")
    suite.notebook("MXNet_Gluon_MultiGPU", BEGIN, FINISH, kernel="mxnet", framework="MXNet Gluon")
    suite.notebook("Zoo_MultiGPU", BEGIN, FINISH, framework="Zoo")  # of a kernel nobody knows
    env = gpus(suite.folder, 1)
    planned = compare(suite, env, "--dry-run")
    assert probed(suite.folder) == [] and "Testing environment" not in planned

    said = compare(suite, env, "--name", "b", code=1)
    assert suite.states("b") == {
        "PyTorch_MultiGPU": "finished",
        "MXNet_Gluon_MultiGPU": "skipped",
        "Zoo_MultiGPU": "finished",
    }
    assert probed(suite.folder) == [f"pytorch {uuid(0)}", f"mxnet {uuid(0)}"]
    lines = [line.strip() for line in said.splitlines()]
    assert "Testing environment pytorch on 1 GPU" in lines and f"warning: {FAILED}" in lines
    begun = next(number for number, line in enumerate(lines) if line.startswith("[1/3]"))
    assert lines.index("Testing environment mxnet on 1 GPU") < begun, (
        "all of them before the first run"
    )

    good = record.read(suite.run("b", "PyTorch_MultiGPU"))["self_test"]
    assert good["reason"] is None and good["devices"] == [A100[0]] and good["versions"]["small"]
    assert [step["what"] for step in good["steps"]][-1] == "all-reduce"
    bad = record.read(suite.run("b", "MXNet_Gluon_MultiGPU"))
    assert bad["state"] == "skipped" and bad["reason"] == FAILED
    assert [step["reason"] is None for step in bad["self_test"]["steps"]] == [True] + [False] * 3
    assert "self_test" not in record.read(suite.run("b", "Zoo_MultiGPU"))

    batch = suite.folder / "runs" / "b"
    log = (batch / "self-test-mxnet-1x.log").read_text(encoding="utf-8")
    assert "Traceback" in log and "no kernel image is available" in log
    page = (batch / "report.html").read_text(encoding="utf-8")
    assert "layers and all-reduce were correct before the experiment" in page
    assert "no kernel image is available" in page


def test_each_kernel_once_for_each_set_of_gpus_stand_in(suite: Suite) -> None:
    plant(suite.folder, "pytorch")
    for name in ("PyTorch_MultiGPU", "PyTorch_MultiGPU_Exp_Loss"):
        suite.notebook(name, BEGIN, "raise ValueError", kernel="pytorch")
    suite.data = write_images(suite.folder / "more", patients=80)  # two devices' global batch
    env = gpus(suite.folder, 2)
    compare(suite, env, "--name", "b", "--devices", "1,2", code=1)
    assert probed(suite.folder) == [f"pytorch {uuid(0)}", f"pytorch {uuid(0)},{uuid(1)}"]


TOLD = """
def list_devices(kind, count, gpus=None):
    (HERE / "asked").write_text(f"{kind} {count} {gpus}")
    return list(range(count))
"""


def test_replicas_that_share_a_gpu_are_probed_sharing_it_stand_in(suite: Suite) -> None:
    plant(suite.folder, "pytorch", TOLD)
    suite.notebook("PyTorch_MultiGPU", BEGIN, "raise ValueError", kernel="pytorch")
    suite.data = write_images(suite.folder / "more", patients=80)
    env = gpus(suite.folder, 2)
    said = compare(suite, env, "--name", "b", "--devices", "2", "--gpus", "1", code=1)
    assert "Testing environment pytorch on 2 replicas on 1 GPU" in said
    assert probed(suite.folder) == [f"pytorch {uuid(0)}"]
    assert (suite.folder / "planted" / "asked").read_text() == "gpu 2 1"
    assert (suite.folder / "runs" / "b" / "self-test-pytorch-2x-1gpu.log").exists()
    [path] = (suite.folder / "runs" / "b").glob("PyTorch_MultiGPU-2x-1gpu*")
    assert record.read(path)["self_test"]["devices"] == [A100[0]] * 2


def test_virtual_devices_are_not_probed(suite: Suite) -> None:
    plant(suite.folder, "pytorch")
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH, kernel="pytorch")
    assert suite.compare("--name", "b") == 0
    assert probed(suite.folder) == []
    assert "self_test" not in record.read(suite.run("b", "PyTorch_MultiGPU"))


def test_a_signal_during_a_probe_leaves_nothing_and_goes_on_stand_in(suite: Suite) -> None:
    plant(suite.folder, "pytorch", HANGS)
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH, kernel="pytorch")
    env = gpus(suite.folder, 1)
    running = suite.start("--name", "b", env=env, errors=subprocess.PIPE)
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
    assert "Resuming experiment b" in compare(suite, env, "--name", "b")
    assert suite.states("b") == {"PyTorch_MultiGPU": "finished"}


def test_resumed_only_what_is_still_to_run_is_probed_stand_in(suite: Suite) -> None:
    for kernel in ("pytorch", "mxnet"):
        plant(suite.folder, kernel)
    wait = f"if not (Path(run).parents[2] / 'second').exists():{WAIT}".replace("\n", "\n    ")
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH, kernel="pytorch")
    suite.notebook(
        "MXNet_Gluon_MultiGPU", BEGIN, wait, FINISH, kernel="mxnet", framework="MXNet Gluon"
    )
    env = gpus(suite.folder, 1)
    running = suite.start("--name", "b", env=env)
    pids = suite.run("b", "MXNet_Gluon_MultiGPU") / "pids"
    wait_for(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=120)
    (suite.folder / "second").touch()
    compare(suite, env, "--name", "b")
    assert [line.split()[0] for line in probed(suite.folder)] == ["pytorch", "mxnet", "mxnet"]
    assert "self_test" in record.read(suite.run("b", "PyTorch_MultiGPU")), (
        "it is kept with its probe"
    )


def test_findings_that_no_part_can_measure_are_noted(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook("PyTorch_MultiGPU", BEGIN, FINISH)
    plan = plans.make_plan(devices=[1], recipe="demo", data=str(suite.data), seeds=[0, 1])
    preflight.check(experiments.choose(plan, name="b", resume=None))
    said = capsys.readouterr().out
    assert said.count("note: test has no positive image of Atelectasis") == 1, said
    assert "so its AUC cannot be measured" in said
