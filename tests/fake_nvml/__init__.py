"""A compiled stand-in for the NVIDIA driver's library; only hardware is faked in these tests.

pynvml does nothing but load ``libnvidia-ml.so.1``, so a library of that name, found through an
LD_LIBRARY_PATH set before the sampler starts, is all it takes. What it replays is described at
the top of ``fake_nvml.c``.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
SMI = Path(__file__).with_name("nvidia_smi.py")

H200 = """
{gpu} uuid GPU-{gpu}0000000-aaaa-bbbb-cccc-dddddddddddd
{gpu} name NVIDIA H200
{gpu} memory_total 143771
{gpu} limit 700000
{gpu} temperature 41
{gpu} sm_clock 1980
{gpu} memory_clock 3201
"""

JETSON = """
0 uuid 54fe8d62-aaaa-bbbb-cccc-dddddddddddd
0 name Orin (nvgpu)
0 capability 87
0 utilisation 50
0 processes E3
"""
"""A GPU without memory of its own, a UUID without a prefix, and no list of processes."""

#: What the machines of the tests hold: name, and ten times the compute capability.
V100, A100, H100 = ("Tesla V100-SXM2-16GB", 70), ("NVIDIA A100-SXM4-40GB", 80), ("NVIDIA H100", 90)


def machine(*gpus: tuple[str, int], driver: str = "580.65.06") -> str:
    """A script of GPUs that do nothing."""
    lines = [f"driver {driver}"]
    for gpu, (name, capability) in enumerate(gpus):
        lines += [f"{gpu} uuid {uuid(gpu)}", f"{gpu} name {name}", f"{gpu} capability {capability}"]
    return "\n".join(lines) + "\n"


def uuid(gpu: int) -> str:
    return f"GPU-{gpu}0000000-aaaa-bbbb-cccc-dddddddddddd"


@functools.cache
def library(old_driver: bool = False) -> Path:
    """The folder that holds the compiled library; the test is skipped without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler here, so the fake NVML cannot be built")
    folder = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    name = "libnvidia-ml.so.1"
    words = ["-DOLD_DRIVER"] if old_driver else []
    words += ["-O1", "-shared", "-fPIC", f"-Wl,-soname,{name}", str(SOURCE)]
    subprocess.run([compiler, *words, "-o", str(folder / name)], check=True)
    (folder / "nvidia-smi").symlink_to(SMI)
    return folder


def environment(script: Path, old_driver: bool = False) -> dict[str, str]:
    """What a process must be started with to see the scripted GPUs."""
    known = os.environ.get("LD_LIBRARY_PATH")
    folder = str(library(old_driver))
    return {
        "LD_LIBRARY_PATH": folder + (os.pathsep + known if known else ""),
        "FAKE_NVML_SCRIPT": str(script),
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
    }
