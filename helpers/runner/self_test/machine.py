"""Describe the machine of a self-test for the readers of a bug report.

The description contains no user name, no host name and no serial number of a GPU.
"""

import itertools
import platform
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pynvml

from helpers import paths
from helpers.frameworks import capabilities, devices, topology
from helpers.frameworks.capabilities import generation
from helpers.record import run_identity


def rows() -> list[tuple[str, str]]:
    """The properties of this machine: name and value of each."""
    about = devices.hardware()
    memory = f"{about['memory_bytes'] / 2**30:.0f} GiB"
    return [
        ("commit", run_identity.commit() or "unknown"),
        ("system", f"{_distribution()}, {about['platform']}"),
        ("Python", platform.python_version()),
        ("CPU", f"{about['cpu']}, {about['cores']} cores, {memory}"),
        *gpus(),
    ]


def gpus() -> list[tuple[str, str]]:
    """The driver, each GPU of the machine and the link between each pair."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        what = "none" if error.value in capabilities.NO_DRIVER else "does not start"
        return [("driver", f"{what} ({devices.words(error)})")]
    try:
        driver = devices.text(pynvml.nvmlSystemGetDriverVersion())
        newest = topology.query(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        cuda = f", for CUDA up to {newest // 1000}.{newest % 1000 // 10}" if newest else ""
        handles = {
            number: topology.query(pynvml.nvmlDeviceGetHandleByIndex, number)
            for number in range(pynvml.nvmlDeviceGetCount())
        }
        found = [("driver", driver + cuda)]
        for number, handle in handles.items():
            found.append(
                (f"GPU {number}", _gpu(handle) if handle else "the driver cannot reach it")
            )
        reached = [(number, handle) for number, handle in handles.items() if handle]
        for (one, left), (other, right) in itertools.combinations(reached, 2):
            found.append((f"GPUs {one}-{other}", topology.between(left, right)))
        return found
    finally:
        pynvml.nvmlShutdown()


def plain(text: str) -> str:
    """``text`` without folder names that contain the user's name."""
    text = text.replace(f"{paths.ROOT}/", "").replace(str(paths.ROOT), ".")
    with suppress(RuntimeError):  # the user has no home folder
        if Path.home() != Path("/"):  # as in a container that runs under an unknown user id
            text = re.sub(rf"(?<![\w.-]){re.escape(str(Path.home()))}(?![\w.-])", "~", text)
    return re.sub(r"/(home|Users)/[^/\s:'\"]+", "~", text)


def _gpu(handle: Any) -> str:
    said = [devices.text(topology.query(pynvml.nvmlDeviceGetName, handle) or "name unknown")]
    capability = topology.query(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    said.append(f"generation {generation(capability) if capability else 'unknown'}")
    memory = topology.query(pynvml.nvmlDeviceGetMemoryInfo, handle)
    said.append(
        f"{memory.total / 2**30:.0f} GiB" if memory and memory.total else "memory not reported"
    )
    mode = topology.query(pynvml.nvmlDeviceGetMigMode, handle)
    on = mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    said.append("in MIG mode" if on else "no MIG")
    return ", ".join(said)


def _distribution() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return platform.system()
