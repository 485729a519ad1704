"""The kernels: which there are, which form this machine gets, and how Jupyter finds them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gpus
from gpus import Gpu

from helpers.frameworks import capabilities, idle_threads, optional_kernels

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENVS = ROOT / ".venvs"


DRIVER, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
"""NVIDIA's driver, as programs load it."""


class Kernel(NamedTuple):
    title: str  # as Jupyter's menu shows it
    imports: str  # what must import for the environment to count as built


# To add a kernel: a line here, <name>.in beside this file (and <name>-gpu.in if its GPU packages
# are other packages), its GPU library in device_code.py, and `make lock`. docs/environments.md
# says it step by step.
KERNELS = {
    "lab": Kernel("Lab (no framework)", "jupyterlab, papermill, nbmake"),
    "pytorch": Kernel("PyTorch", "torch, torchvision"),
    "tensorflow": Kernel("TensorFlow and Keras", "tensorflow, keras"),
    "mxnet": Kernel("MXNet Gluon", "mxnet"),
    "chainer": Kernel("Chainer", "chainer, chainercv.transforms"),
    "horovod": Kernel("TensorFlow and Keras with Horovod", "horovod.tensorflow, keras"),
    "jax": Kernel("JAX", "jax, flax.nnx, optax, grain"),
}

USUAL = [name for name in KERNELS if name not in optional_kernels()]
"""Those that are made where none is named."""


class Machine(NamedTuple):
    """What decides between a kernel's forms."""

    gpu: bool  # install GPU forms
    gpus: tuple[Gpu, ...] = ()  # empty if there are none, or unknown ones
    forms: tuple[tuple[str, str], ...] = ()  # kernels whose form is decided, and that form


def this_machine(gpu: bool | Gpu | None = None) -> Machine:
    """GPU forms where an NVIDIA driver is loaded (also that of Windows, in WSL), unless told.

    Told of a GPU, it is a machine with that one: environments may be made for another machine.

    Raises:
        gpus.DriverError: it depends on a driver that is installed and does not start.
    """
    if isinstance(gpu, Gpu):
        return Machine(True, (gpu,))
    signs = "/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1"
    try:
        found = gpus.found()
    except gpus.DriverError as error:
        if gpu is None:
            raise gpus.DriverError(f"{error}; to build for the CPU instead: --cpu") from None
        found = ()
    driver = bool(found) or any(Path(sign).exists() for sign in signs)
    return Machine(driver if gpu is None else gpu, found)


def form(kernel: str, machine: Machine) -> str:
    """Which form of a kernel this machine gets: "cpu", "gpu", or an older "gpu-..." one."""
    if kernel in (decided := dict(machine.forms)):
        return decided[kernel]
    if not machine.gpu or kernel == "lab":
        return "cpu"
    return capabilities.best_form(kernel, machine.gpus) if machine.gpus else "gpu"


def lock_of(kernel: str, kind: str) -> Path:
    """The lock of a form. PyTorch has one for CPU and GPU."""
    return HERE / f"{capabilities.lock(kernel, kind)}.txt"


def prospects(wanted: list[str], machine: Machine) -> Iterator[str]:
    """What will run on this machine's GPUs, and what will not and why: a line each."""
    kinds = list(dict.fromkeys(machine.gpus))
    if not kinds:
        yield "GPUs: none found"
        return
    counted = ", ".join(f"{machine.gpus.count(gpu)} x {gpu}" for gpu in kinds)
    yield f"GPUs: {counted}, driver {kinds[0].driver}"
    for kernel in (k for k in wanted if capabilities.forms(k)):
        kind = form(kernel, machine)
        whys = {gpu: capabilities.why_not(kernel, kind, [gpu]) for gpu in kinds}
        said = [f"skipped: {why}" if why else f"runs on {gpu}" for gpu, why in whys.items()]
        for outcome in said if any(whys.values()) else ["runs"]:
            yield f"  {kernel:11} {kind:11} {outcome}"


# --- What is built ---------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's object; empty if it is missing or not whole."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    part.replace(path)


def status_file(kernel: str) -> Path:
    return VENVS / f"{kernel}.json"


def status(kernel: str) -> dict[str, Any]:
    """How a kernel's environment stands: kernel, ok, form, reason, seconds, pillow, note."""
    none = {"kernel": kernel, "ok": False, "form": "cpu", "reason": "not made yet: make envs"}
    return {**none, "seconds": 0.0, "pillow": None, "note": "", **read_json(status_file(kernel))}


# --- How it is used --------------------------------------------------------------------------


def activation(kernel: str, kind: str) -> dict[str, str]:
    """This process's environment variables, as if the kernel's environment were active.

    Without Python's own (PYTHONHOME and all others), which would bring in other packages, and with
    this checkout first: the environment may have been made for another one (a git worktree). So
    helpers.training.environment_variables has it for the kernels that run notebooks.
    """
    own = _variables(kernel, kind)
    path = f"{VENVS / kernel / 'bin'}:{os.environ.get('PATH', os.defpath)}"
    rest = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    python = {
        "PYTHONPATH": str(ROOT),
        "PYTHONNOUSERSITE": "1",
        "IPYTHONDIR": str(VENVS / ".ipython"),
    }
    return {**rest, **python, **own, "PATH": path}


def _variables(kernel: str, kind: str) -> dict[str, str]:
    venv = VENVS / kernel
    # Jupyter fills in ${PATH}, which is always set; of a variable that is not set it would leave
    # the ${...} standing, so there is no other.
    env = {"PATH": f"{venv / 'bin'}:${{PATH}}", "VIRTUAL_ENV": str(venv), **idle_threads.VARIABLES}
    if kind == "gpu" and lock_of(kernel, kind).stem.endswith("-gpu"):
        # The CUDA libraries come as packages. MXNet and Chainer were made before that and find
        # them only so. Of what was on the path before only folders with the driver stay (some
        # containers keep it there): a cluster's modules put other CUDA libraries on it.
        libraries = sorted(map(str, venv.glob("lib/python*/site-packages/nvidia/*/lib")))
        before = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
        before = [p for p in before if Path(p, DRIVER).exists() or Path(p, NVML).exists()]
        env["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys([*libraries, *before]))
    return env


def _specification(kernel: str) -> Path:
    return VENVS / "lab" / "share" / "jupyter" / "kernels" / kernel / "kernel.json"


def register(kernel: str, kind: str) -> None:
    """Tells the lab's Jupyter, papermill and nbmake of a kernel."""
    python = VENVS / kernel / "bin" / "python"
    write_json(_specification(kernel), {
        "argv": [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": KERNELS[kernel].title,
        "language": "python",
        "metadata": {"debugger": True},
        "env": _variables(kernel, kind),
    })  # fmt: skip


def unregister(kernel: str) -> None:
    shutil.rmtree(_specification(kernel).parent, ignore_errors=True)
