"""What runs on which GPU, found out without any: real locks, real commands, a fake driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import fake_nvml
import pytest
from data_prep_tools import make_folder
from fake_nvml import A100, H100, V100, uuid
from runner_tools import BEGIN, FINISH, Suite
from self_test_tools import plant

from helpers import paths
from helpers.frameworks import ROWS, capabilities

KERNELS = tuple(dict.fromkeys(row.kernel for row in ROWS))
MACHINES = {
    "none": "init 9\n",  # NVML: driver not loaded
    "V100": fake_nvml.machine(*[V100] * 4),
    "A100": fake_nvml.machine(A100),
    "A100, older driver": fake_nvml.machine(A100, driver="535.129.03"),
    "H100": fake_nvml.machine(H100, H100),
    "H100, older driver": fake_nvml.machine(H100, driver="535.129.03"),
    "V100 and H100": fake_nvml.machine(V100, H100),
}
MISMATCH = "init 18\n" + fake_nvml.machine(H100)
NO_START = "the NVIDIA driver does not start: "
WHY = f"{NO_START}Driver/library version mismatch (NVML error 18); run "

RUNS, OTHER, DRIVER, NO_CODE = "runs", "'make envs' installs the", "or newer", "has no code for"
FOR_CPUS = "has no code for GPUs"
# Each installed form on each machine: it runs, or why it is skipped.
MATRIX = {
    "pytorch cpu": [RUNS, OTHER, RUNS, OTHER, RUNS, OTHER, OTHER],
    "pytorch gpu": [RUNS, OTHER, RUNS, OTHER, RUNS, OTHER, OTHER],
    "pytorch gpu-cuda12": [RUNS] * 7,
    "tensorflow cpu": [RUNS, OTHER, OTHER, OTHER, OTHER, DRIVER, OTHER],
    "tensorflow gpu": [RUNS, RUNS, RUNS, RUNS, RUNS, DRIVER, RUNS],
    "mxnet cpu": [RUNS, OTHER, OTHER, OTHER, NO_CODE, NO_CODE, NO_CODE],
    "mxnet gpu": [RUNS, RUNS, RUNS, RUNS, NO_CODE, NO_CODE, NO_CODE],
    "chainer cpu": [RUNS, OTHER, OTHER, OTHER, OTHER, OTHER, OTHER],
    "chainer gpu": [RUNS] * 7,
    "jax cpu": [RUNS, NO_CODE, OTHER, OTHER, OTHER, OTHER, NO_CODE],
    "jax gpu": [RUNS, NO_CODE, RUNS, RUNS, RUNS, RUNS, NO_CODE],
    "horovod cpu": [RUNS, *[FOR_CPUS] * 6],
    "horovod gpu": [RUNS, *[FOR_CPUS] * 6],
}


def run(machine: str, *command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A command on a machine with those GPUs (or of a script); all are visible."""
    with tempfile.NamedTemporaryFile("w", suffix=".script") as script:
        script.write(MACHINES.get(machine, machine))
        script.flush()
        fake = fake_nvml.environment(Path(script.name))
        ours = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        env = {**ours, **fake, "PYTHONPATH": str(paths.ROOT), **more}
        return subprocess.run(command, env=env, check=False, capture_output=True, text=True)


ASK = """
import json, sys
from pathlib import Path
from helpers import paths
from helpers.frameworks import devices
paths.VENVS = Path(sys.argv[1])
said = {}
for name in sys.argv[2:]:
    kernel, form = name.split()
    (paths.VENVS / f"{kernel}.json").write_text(json.dumps({"ok": True, "form": form}))
    said[name] = devices.problem(kernel, devices.visible())
print(json.dumps(said))
"""


def lay_kernels(folder: Path) -> None:
    """Kernels that Jupyter finds below ``folder`` (JUPYTER_PATH)."""
    for kernel in KERNELS:
        (folder / "kernels" / kernel).mkdir(parents=True)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        content = {"argv": argv, "display_name": kernel, "language": "python"}
        (folder / "kernels" / kernel / "kernel.json").write_text(json.dumps(content))


def test_the_stand_in_matrix_has_every_form() -> None:
    forms = {f"{kernel} {form}" for kernel in KERNELS for form in capabilities.forms(kernel)}
    assert set(MATRIX) == forms | {f"{kernel} cpu" for kernel in KERNELS}


@pytest.mark.parametrize("machine", MACHINES)
def test_stand_in_every_form_runs_or_says_why_not(machine: str, tmp_path: Path) -> None:
    lay_kernels(tmp_path)
    done = run(machine, sys.executable, "-c", ASK, tmp_path, *MATRIX, JUPYTER_PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    for form, why in json.loads(done.stdout).items():
        expected = dict(zip(MACHINES, MATRIX[form], strict=True))[machine]
        if expected == RUNS:
            assert why is None, form
        else:
            assert why and why.startswith(f"kernel '{form.split()[0]}': ") and expected in why
            assert why.isprintable()


def lay_suite(suite: Suite, *cells: str, **forms: str) -> None:
    """A notebook for each kernel, which `make envs` has installed in that form."""
    lay_kernels(suite.folder / "jupyter")
    (suite.folder / "venvs").mkdir()
    for kernel, form in forms.items():
        suite.notebook(f"{kernel}_MultiGPU", *cells, kernel=kernel)
        status = json.dumps({"ok": True, "form": form})
        (suite.folder / "venvs" / f"{kernel}.json").write_text(status)


GIVEN = """
import json, os, sys
from pathlib import Path
sys.path[:0] = [{root!r}]
from helpers.frameworks import devices; from helpers.training import parameters
setup = parameters.resolve("N", recipe="demo", data=data, devices=devices_asked, run=run)
import gpumon
monitor = gpumon.Monitor(Path(run) / "trace", interval=0.05)
monitor.start()
monitor.stop()
lanes = [one["name"] for one in gpumon.read(Path(run) / "trace").devices if one["kind"] != "host"]
seen = dict(visible=os.environ.get("CUDA_VISIBLE_DEVICES"), lanes=lanes, short=setup.devices.short)
seen["hardware"] = devices.hardware()["gpus"]
(Path(run) / "seen.json").write_text(json.dumps(seen))
""".replace("{root!r}", repr(str(paths.ROOT)))


def seen_by_a_run(suite: Suite, machine: str, *asked: str, **more: str) -> dict[str, Any]:
    keep = "devices_asked = devices"  # before the module of that name is imported
    suite.data = make_folder(suite.folder / "many", patients=100, images=5, size=38)
    lay_suite(suite, BEGIN, keep, GIVEN, FINISH, pytorch="gpu")
    plant(suite.folder, "pytorch")  # to be tested in the place of PyTorch, which the lab has not
    done = run(machine, *suite.command("--name", "seen", *asked), **more)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (suite.folder / "runs" / "seen").glob("*/seen.json")
    content: dict[str, Any] = json.loads(found.read_text("utf-8"))
    return content | {"folder": found.parent.name}


def test_stand_in_a_run_sees_its_gpu_and_no_other(suite: Suite) -> None:
    seen = seen_by_a_run(suite, "H100", "--devices", "1")
    assert (seen["visible"], seen["short"]) == (uuid(0), "1 GPU")
    assert seen["hardware"] == ["NVIDIA H100"] and seen["lanes"] == ["gpu0"]
    assert seen["folder"] == "pytorch_MultiGPU-1x"


def test_stand_in_gpus_that_cannot_be_had_are_one_line(suite: Suite) -> None:
    """Nor is anything begun where the driver does not start."""
    lay_suite(suite, pytorch="gpu")
    for machine, devices, why in (
        ("A100", "4", "devices 4: this process sees 1 GPU(s); give 1 at most (for CPU devices "),
        (MISMATCH, "1", WHY),
    ):
        for more in ([], ["--dry-run"]):
            done = run(machine, *suite.command(*more, "--devices", devices))
            assert done.returncode == 2 and done.stderr.startswith(f"error: {why}"), done.stderr
            assert done.stderr.count("\n") == 1 and not done.stdout
    assert not (suite.folder / "runs" / "latest").exists()


SEES = """
from helpers.frameworks import devices
from helpers.errors import UserError
try:
    found = devices.resolve()
    print(found.kind, *[gpu.uuid for gpu in devices.visible()], found.names[0], sep="; ")
except UserError as error:
    print(error)
"""
MIG = fake_nvml.machine(H100, H100) + "0 mig 1\n"


VISIBLE: list[tuple[str, str | None, str]] = [
    (MIG, None, "GPU 0 is in MIG mode, which is not supported: "),
    (MIG, uuid(1), f"gpu; {uuid(1)}; NVIDIA H100"),
    (MACHINES["H100"], "7", "CUDA_VISIBLE_DEVICES=7 names no GPU"),
    (MACHINES["H100"], "1,0", f"gpu; {uuid(1)}; {uuid(0)}; NVIDIA H100"),
    # No driver, and GPUs that are hidden of one that does not start.
    ("init 9\n", None, "cpu; CPU device 0"),
    (MISMATCH, "", "cpu; CPU device 0"),
    *((MISMATCH, variable, WHY) for variable in (None, "0")),
    ("init 17\n", None, f"{NO_START}GPU access blocked by the operating system (NVML error 17)"),
]
NO_GPUS = "; to use the CPU instead: CUDA_VISIBLE_DEVICES="


@pytest.mark.parametrize(("script", "variable", "expected"), VISIBLE)
def test_stand_in_visible_gpus(script: str, variable: str | None, expected: str) -> None:
    given = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    line = run(script, sys.executable, "-c", SEES, **given).stdout.strip()
    assert line.startswith(expected)
    assert line.endswith(NO_GPUS) == expected.startswith(NO_START) and line.isprintable()


def test_stand_in_a_run_on_the_cpu_leaves_the_gpus_and_their_driver_alone(suite: Suite) -> None:
    seen = seen_by_a_run(suite, MISMATCH, "--devices", "2", CUDA_VISIBLE_DEVICES="")
    assert (seen["hardware"], seen["lanes"], seen["visible"]) == ([], [], "")
    assert seen["short"] == "2 CPU devices"


def test_stand_in_make_envs_refuses_a_driver_that_does_not_start() -> None:
    build = (sys.executable, paths.ROOT / "environments" / "build.py", "--show")
    done = run(MISMATCH, *build)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"build.py: {WHY}") and done.stderr.count("\n") == 1
    assert done.stderr.endswith("; or use --cpu to build the CPU variants\n")
    done = run(MISMATCH, *build, "--cpu")
    assert (done.returncode, done.stdout) == (0, "GPUs: none found\n"), done.stderr
