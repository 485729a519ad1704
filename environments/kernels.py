"""List the environments, choose their variants, and register them in Jupyter."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gpus
from gpus import Gpu

from helpers.frameworks import KERNEL_VARIABLES, capabilities, optional_kernels

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENVS = ROOT / ".venvs"


DRIVER, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
"""The libraries by which programs load NVIDIA's driver."""


class Kernel(NamedTuple):
    title: str  # the name in Jupyter's menu
    imports: str  # modules that a complete environment can import


# To add an environment, add a line here, <name>.in next to this file (and <name>-gpu.in if its GPU
# packages differ) and its GPUs in helpers/frameworks/capabilities.py, and run `make lock`.
# docs/adding-a-framework.md has the steps.
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
"""The environments that are built by default."""


class Machine(NamedTuple):
    """The properties that decide the variant of each environment."""

    gpu: bool  # install GPU variants
    gpus: tuple[Gpu, ...] = ()  # empty if there are no GPUs, or unknown ones
    variants: tuple[tuple[str, str], ...] = ()  # environments whose variant is fixed


def this_machine(gpu: bool | Gpu | None = None) -> Machine:
    """Describe this machine: it gets GPU variants if an NVIDIA driver is loaded (also in WSL)."""
    if isinstance(gpu, Gpu):
        return Machine(True, (gpu,))
    signs = "/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1"
    try:
        found = gpus.found()
    except gpus.DriverError as error:
        if gpu is None:
            raise gpus.DriverError(f"{error}; or use --cpu to build the CPU variants") from None
        found = ()
    driver = bool(found) or any(Path(sign).exists() for sign in signs)
    return Machine(driver if gpu is None else gpu, found)


def variant(kernel: str, machine: Machine) -> str:
    """The variant of an environment for this machine: "cpu", "gpu", or an older "gpu-..."."""
    if kernel in (fixed := dict(machine.variants)):
        return fixed[kernel]
    if not machine.gpu or kernel == "lab":
        return "cpu"
    return capabilities.best_form(kernel, machine.gpus) if machine.gpus else "gpu"


def lock_of(kernel: str, kind: str) -> Path:
    """The lock of a variant; PyTorch has one lock for CPU and GPU."""
    return HERE / f"{capabilities.lock(kernel, kind)}.txt"


def prospects(wanted: list[str], machine: Machine) -> Iterator[str]:
    """One line for each environment: it runs on this machine's GPUs, or the reason why not."""
    kinds = list(dict.fromkeys(machine.gpus))
    if not kinds:
        yield "GPUs: none found"
        return
    counted = ", ".join(f"{machine.gpus.count(gpu)} x {gpu}" for gpu in kinds)
    yield f"GPUs: {counted}, driver {kinds[0].driver}"
    for kernel in (k for k in wanted if capabilities.forms(k)):
        kind = variant(kernel, machine)
        whys = {gpu: capabilities.why_not(kernel, kind, [gpu]) for gpu in kinds}
        said = [f"skipped: {why}" if why else f"runs on {gpu}" for gpu, why in whys.items()]
        for outcome in said if any(whys.values()) else ["runs"]:
            yield f"  {kernel:11} {kind:11} {outcome}"


# --- What is built ---------------------------------------------------------------------------


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's object; empty if the file is missing or damaged."""
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
    """An environment's status: kernel, ok, form (its variant), reason, seconds, pillow, note."""
    none = {"kernel": kernel, "ok": False, "form": "cpu", "reason": "not built yet: run make envs"}
    return {**none, "seconds": 0.0, "pillow": None, "note": "", **read_json(status_file(kernel))}


# --- How it is used --------------------------------------------------------------------------


def activation(kernel: str, kind: str) -> dict[str, str]:
    """This process's environment variables, as if the environment were active.

    Python's own are left out, because they could add other packages. This checkout comes first,
    because the environment may have been built for another one (a git worktree).
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
    # Jupyter replaces ${PATH}, which is always set. No other variable is used this way, because
    # Jupyter would leave the ${...} of an unset variable in the text.
    env = {"PATH": f"{venv / 'bin'}:${{PATH}}", "VIRTUAL_ENV": str(venv), **KERNEL_VARIABLES}
    if kind == "gpu" and lock_of(kernel, kind).stem.endswith("-gpu"):
        # The CUDA libraries are Python packages, which MXNet and Chainer find only by this path.
        # Only folders of the previous path with the driver stay (some containers have it there),
        # because a cluster's modules add other CUDA libraries.
        libraries = sorted(map(str, venv.glob("lib/python*/site-packages/nvidia/*/lib")))
        before = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
        before = [p for p in before if Path(p, DRIVER).exists() or Path(p, NVML).exists()]
        env["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys([*libraries, *before]))
        # The driver compiles TensorFlow's PTX for minutes: once, if its cache has room for it all.
        env |= {"CUDA_CACHE_PATH": str(VENVS / ".cuda"), "CUDA_CACHE_MAXSIZE": str(4 * 2**30)}
        # CuPy prefers headers of a CUDA toolkit on this machine, whose version may not fit.
        for own in venv.glob("lib/python*/site-packages/nvidia/cuda_runtime"):
            env["CUDA_PATH"] = str(own)
    return env


def _specification(kernel: str) -> Path:
    return VENVS / "lab" / "share" / "jupyter" / "kernels" / kernel / "kernel.json"


def register(kernel: str, kind: str) -> None:
    """Register an environment as a kernel of the lab's Jupyter, papermill and nbmake."""
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
