"""The probe from outside: what it makes of faults, of hangs and of a machine; its command."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_nvml
import numpy as np
import pytest
from fake_nvml import A100, H100
from probe_tools import HANGS, plant, probed
from runner_tools import wait_for

from helpers import paths
from helpers.__main__ import main
from helpers.launch import processes
from helpers.runner import kernel_processes
from helpers.runner.self_test import expected, machine, starting, worker
from helpers.runner.self_test.starting import Outcome

TWO = ("CPU device 0", "CPU device 1")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout in small, whose kernels the tests plant."""
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(paths, "VENVS", tmp_path / "venvs")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path


def probe(folder: Path, fault: str = "", limit: float = 60.0) -> Outcome:
    plant(folder, "pytorch", fault)
    python, environment = starting.start_of("pytorch")
    log = folder / "probe.log"
    return starting.run(
        "pytorch", "cpu", TWO, python=python, environment=environment, log=log, limit=limit
    )


# --- What is known ----------------------------------------------------------------------------


def test_the_known_gradients_are_slopes() -> None:
    """Slopes of the sum of output times gradient, as the frameworks flow it back: differences."""
    for layer in expected.LAYERS:
        given = {name: array.astype(np.float64) for name, array in expected.inputs(layer).items()}
        right = expected.expected(layer, given)
        for name in given.keys() - {"gradient"}:
            for place in (0, given[name].size // 2, given[name].size - 1):
                ends = []
                for step in (-1e-4, 1e-4):
                    moved = {what: array.copy() for what, array in given.items()}
                    moved[name].flat[place] += step
                    output = expected.expected(layer, moved)["output"]
                    ends.append(float((output * given["gradient"]).sum()))
                slope = (ends[1] - ends[0]) / 2e-4
                assert slope == pytest.approx(right[name].flat[place], abs=1e-4), (layer, name)


@pytest.mark.parametrize("layer", expected.LAYERS)
def test_rounding_passes_and_nothing_else(layer: str) -> None:
    right = expected.expected(layer, expected.inputs(layer))
    rounded = {name: array.astype(np.float32) for name, array in right.items()}
    assert expected.wrong(rounded, right) is None
    for name in right:
        what = "output" if name == "output" else f"gradient of {name}"
        one_off = rounded | {name: rounded[name].copy()}
        one_off[name].flat[3] += 1
        assert expected.wrong(one_off, right) == f"wrong result: {what} is off by up to 1"
        one_off[name].flat[3] = np.nan
        assert expected.wrong(one_off, right) == f"wrong result: {what} is off by up to nan"
        turned = expected.wrong(rounded | {name: rounded[name][..., :-1]}, right)
        assert turned and turned.startswith(f"wrong result: {what} is (")
        gone = expected.wrong({key: rounded[key] for key in rounded if key != name}, right)
        assert gone and gone.startswith(f"wrong result: {what} is nothing")


# --- What becomes of a fault ------------------------------------------------------------------


def test_all_is_well_and_says_what_was_done(small: Path) -> None:
    found = probe(small)
    assert found.reason is None and found.versions["small"] == np.__version__
    layers = [(layer, device) for device in (0, 1) for layer in expected.LAYERS]
    done = [("start", None), *layers, ("all-reduce", None)]
    assert [(step["what"], step["device"]) for step in found.steps] == done
    assert 0 < sum(step["seconds"] for step in found.steps) < found.seconds


SECOND_LAYER = """
whole = through_layer
def through_layer(layer, arrays, device):
    if layer == "BatchNorm" and device == 1:
        FAULT
    return whole(layer, arrays, device)
"""
FAULTS: dict[str, tuple[str, str]] = {
    "wrong": (
        SECOND_LAYER.replace(
            "FAULT", "arrays = arrays | {'scale': arrays['scale'] + (np.arange(16) == 3)}"
        ),
        r"BatchNorm on CPU device 1: wrong result: output is off by up to \d\.\d+",
    ),
    "raises": (
        SECOND_LAYER.replace("FAULT", r"raise RuntimeError('CUDA error: no kernel image\nmore')"),
        "BatchNorm on CPU device 1: RuntimeError: CUDA error: no kernel image",
    ),
    "dies": (
        SECOND_LAYER.replace("FAULT", "os.kill(os.getpid(), signal.SIGSEGV)"),
        "BatchNorm on CPU device 1: the process died of SIGSEGV",
    ),
    "no library": (
        "raise OSError('libcuda.so.1: cannot open shared object file')",
        "start: OSError: libcuda.so.1: cannot open shared object file",
    ),
    "ends": ("sys.exit(3)", "start: the process died with exit code 3"),
    "sums wrong": (
        "def all_reduced(shares, devices): return [sum(shares), shares[0]]",
        "all-reduce over 2 devices: wrong result: the sum on device 1 is wrong",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_in_one_line(name: str, small: Path) -> None:
    fault, says = FAULTS[name]
    reason = probe(small, fault).reason
    assert reason is not None and re.fullmatch(says, reason), reason


def test_a_hang_ends_and_leaves_no_process(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, wait = small / "planted" / "pids", subprocess.Popen.wait

    def until_it_hangs(process: Any, limit: float | None = None) -> int:
        if limit is None:
            return wait(process)
        wait_for(lambda: told.exists() and len(told.read_text().split()) == 3)
        raise subprocess.TimeoutExpired("probe", limit)

    monkeypatch.setattr(subprocess.Popen, "wait", until_it_hangs)
    found = probe(small, HANGS)
    assert found.reason == "all-reduce over 2 devices: hung: not done after 60 s"
    assert found.steps[-1]["seconds"] is None
    assert not any(processes.lives(int(pid)) for pid in told.read_text().split())
    assert "in all_reduced" in (small / "probe.log").read_text(encoding="utf-8")


def test_a_python_that_cannot_be_started_is_the_kernels_fault(small: Path) -> None:
    python = plant(small, "pytorch")
    run: dict[str, Any] = {"python": str(python), "environment": dict(os.environ)}
    python.write_bytes(b"\x7fELF of another machine")
    found = starting.run("pytorch", "cpu", TWO, log=small / "l", **run)
    assert found.reason == f"it cannot be started: {python}: Exec format error"
    python.chmod(0o644)
    found = starting.run("pytorch", "cpu", TWO, log=small / "l", **run)
    assert found.reason == f"it cannot be started: {python}: Permission denied"


REPLICA = """replica 1 failed:
Traceback (most recent call last):
  File "replicas.py", line 185, in _replica
    answer = (True, function(rank, *args))
                    ^^^^^^^^^^^^^^^^^^^^^
torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:77, unhandled cuda error
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 'out of memory\'"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            RuntimeError(REPLICA),
            "RuntimeError: replica 1 failed: torch.distributed.DistBackendError: NCCL error in: "
            "NCCLUtils.cpp:77, unhandled cuda error",
        ),
        (RuntimeError("\x1b[2Jgone"), "RuntimeError: \\x1b[2Jgone"),
    ],
)
def test_an_error_is_one_line(error: Exception, line: str) -> None:
    assert worker.said(error) == line


# --- The command ------------------------------------------------------------------------------


def test_the_command_prints_a_table(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kernel in ("pytorch", "mxnet"):
        plant(small, kernel)
    assert main(["doctor", "--environments", "mxnet,pytorch", "--devices", "2,1"]) == 0
    shown = capsys.readouterr()
    rows = [re.split("  +", line) for line in shown.out.splitlines()]
    heading = rows.index(
        ["environment", "devices", "device", "start", *expected.LAYERS, "all-reduce"]
    )
    table = rows[heading + 1 : heading + 7]
    assert [row[:3] for row in table] == [
        [kernel, str(count), device]
        for kernel in ("mxnet", "pytorch")
        for count in (2, 1)
        for device in TWO[:count]
    ]
    assert all(re.fullmatch(r"\d+\.\d\d s", cell) for row in table for cell in row[3:])
    assert f"mxnet: python {platform.python_version()}, small {np.__version__}" in shown.out
    assert shown.out.endswith("Everything works: every result was the expected one.\n")
    assert "testing mxnet on 2 CPU devices" in shown.err


def test_the_command_says_what_does_not_work(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small)
    plant(small, "pytorch", FAULTS["raises"][0])
    paths.VENVS.mkdir()
    (paths.VENVS / "mxnet.json").write_text('{"ok": false, "reason": "no compiler"}')
    assert (
        main(["doctor", "--environments", "pytorch,mxnet", "--devices", "2", "--logs", "kept"]) == 1
    )
    out = capsys.readouterr().out
    assert re.search(r"^pytorch +2 +CPU device 1 .* failed +\d\.\d\d s +-$", out, re.M)
    assert re.search(r"^mxnet +2 +CPU device 1( +-){5}$", out, re.M)
    *_, pytorch, mxnet = out.splitlines()
    said = "BatchNorm on CPU device 1: RuntimeError: CUDA error: no kernel image"
    assert pytorch == f"pytorch, 2 devices: {said} (kept/pytorch-2x.log has the details)"
    why = "the environment of kernel 'mxnet' could not be built: no compiler"
    assert mxnet == f"mxnet, 2 devices: {why}"
    assert (small / "kept" / "pytorch-2x.log").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--environments", "torch"], "unknown environment 'torch': did you mean 'pytorch'?"),
        (["--devices", "0"], "devices 0: a run needs at least one"),
        (["--limit", "-1"], "argument --limit: '-1': give seconds, more than 0"),
        (["--here", "pytorch", "--environments", "pytorch"], "not allowed with argument"),
    ],
)
def test_bad_arguments_are_one_line(
    words: list[str], says: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and says in shown.err and shown.err.count("\n") == 1


def test_a_framework_in_this_very_python(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lab has none, and says so in its own words."""
    assert main(["doctor", "--here", "mxnet", "--devices", "1"]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("mxnet, 1 device: start: ModuleNotFoundError: No module named 'mxnet' (")


def start(folder: Path, *words: str, first: str = "", **env: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    code = (
        "import sys; from pathlib import Path; from helpers import paths\n"
        f"paths.RUNS = Path({str(folder / 'runs')!r})\n{first}"
        "from helpers.__main__ import main; sys.exit(main())"
    )
    whole = {**os.environ, "PYTHONPATH": str(paths.ROOT), **env}
    command = [sys.executable, "-c", code, "doctor", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=whole, stdout=pipe, stderr=pipe, text=True)


def test_the_command_on_gpus_stand_in(small: Path) -> None:
    plant(small, "pytorch")
    (small / "script").write_text(fake_nvml.machine(H100, H100))
    fake = fake_nvml.environment(small / "script") | {"CUDA_VISIBLE_DEVICES": "1,0"}
    running = start(small, "--environments", "pytorch", "--devices", "auto,1", **fake)
    out, errors = running.communicate(timeout=120)
    assert running.returncode == 0, out + errors
    assert re.search("^GPU 0 +NVIDIA H100, generation 9.0", out, re.M)
    assert "testing pytorch on 2 GPUs" in errors
    assert re.findall(r"^pytorch +(\d) +(device \d \(NVIDIA H100\)) ", out, re.M) == [
        ("2", "device 0 (NVIDIA H100)"),
        ("2", "device 1 (NVIDIA H100)"),
        ("1", "device 0 (NVIDIA H100)"),
    ]
    both = f"{fake_nvml.uuid(1)},{fake_nvml.uuid(0)}"
    assert probed(small) == [f"pytorch {both}", f"pytorch {fake_nvml.uuid(1)}"]


def test_it_ends_no_process_of_a_batch_below_its_logs(small: Path) -> None:
    plant(small, "pytorch")
    batch = os.environ | {kernel_processes.MARK: str(small / "other" / "runs" / "b")}
    with subprocess.Popen(["sleep", "600"], env=batch) as other:
        try:
            words = ["--environments", "pytorch", "--devices", "1", "--logs", str(small)]
            assert main(["doctor", *words]) == 0
            assert other.poll() is None
        finally:
            other.kill()


# --- The machine ------------------------------------------------------------------------------

SERVER = fake_nvml.machine(H100, H100, A100, mig=0) + "\n".join(
    [
        *(f"{gpu} memory_total 81559\n{gpu} memory 0" for gpu in range(3)),
        *("0 p2p2.1 0", "0 nvlink 18", "0 topology1 50", "0 topology2 40", "1 topology2 50", ""),
    ]
)


def table_of(script: str, folder: Path) -> str:
    (folder / "script").write_text(script)
    ask = "from helpers.runner.self_test import machine\n"
    ask += "for row in machine.rows(): print(*row, sep=': ')"
    fake = fake_nvml.environment(folder / "script")
    env = {**os.environ, **fake, "PYTHONPATH": str(paths.ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", ask], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_machine_as_the_driver_tells_it_stand_in(tmp_path: Path) -> None:
    said = table_of(SERVER, tmp_path)
    for line in (
        "driver: 580.65.06, for CUDA up to 13.0",
        "GPU 0: NVIDIA H100, generation 9.0, 80 GiB, no MIG",
        "GPU 2: NVIDIA A100-SXM4-40GB, generation 8.0, 80 GiB, no MIG",
        "GPUs 0-1: NVLink, 18 links of the first are up",
        "GPUs 0-2: bridges of one NUMA node (NODE)",
        "GPUs 1-2: the link between CPUs (SYS)",
    ):
        assert f"{line}\n" in said
    assert "GPU-" not in said, "no serial numbers"
    assert "GPU 0: NVIDIA H100, generation 9.0, memory not reported, in MIG mode" in table_of(
        fake_nvml.machine(H100, mig=2), tmp_path
    )
    unknown = table_of(fake_nvml.machine(H100, H100), tmp_path)
    assert "GPUs 0-1: unknown\n" in unknown
    assert "driver: none (Driver Not Loaded)\n" in table_of("init 9\n", tmp_path)


def test_nones_folders_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/people/anna")
    said = machine.plain(
        f"OSError: {paths.ROOT}/.venvs/x.so, /data/people/anna/y, '/home/eve/z': {paths.ROOT}"
    )
    assert said == "OSError: .venvs/x.so, ~/y, '~/z': ."
