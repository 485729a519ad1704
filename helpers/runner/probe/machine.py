"""The machine that a probe was made on, for somebody who has never seen it.

Nothing here names its user, its host or a GPU's serial number.
"""

import itertools
import platform
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pynvml

from helpers import paths
from helpers.frameworks import devices
from helpers.frameworks.capabilities import generation
from helpers.training import run_identity

LEVELS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "one board",
    pynvml.NVML_TOPOLOGY_SINGLE: "one PCIe switch (PIX)",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "several PCIe switches (PXB)",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "the CPU's PCIe bridge (PHB)",
    pynvml.NVML_TOPOLOGY_NODE: "bridges of one NUMA node (NODE)",
    pynvml.NVML_TOPOLOGY_SYSTEM: "the link between CPUs (SYS)",
}
"""What data passes between two GPUs without NVLink, with the words of ``nvidia-smi topo -m``."""


def rows() -> list[tuple[str, str]]:
    """What there is, and what it is."""
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
    """The driver, each GPU of the machine and what lies between each two."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [("driver", f"none ({error})")]
    try:
        driver = devices.text(pynvml.nvmlSystemGetDriverVersion())
        newest = _told(pynvml.nvmlSystemGetCudaDriverVersion_v2)
        cuda = f", for CUDA up to {newest // 1000}.{newest % 1000 // 10}" if newest else ""
        handles = {
            number: _told(pynvml.nvmlDeviceGetHandleByIndex, number)
            for number in range(pynvml.nvmlDeviceGetCount())
        }
        found = [("driver", driver + cuda)]
        for number, handle in handles.items():
            found.append(
                (f"GPU {number}", _gpu(handle) if handle else "the driver cannot reach it")
            )
        reached = [(number, handle) for number, handle in handles.items() if handle]
        for (one, left), (other, right) in itertools.combinations(reached, 2):
            found.append((f"GPUs {one}-{other}", between(left, right)))
        return found
    finally:
        pynvml.nvmlShutdown()


def between(one: Any, other: Any) -> str:
    """The way data takes between two GPUs, as far as the driver tells."""
    nvlink = _told(pynvml.nvmlDeviceGetP2PStatus, one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    if nvlink == pynvml.NVML_P2P_STATUS_OK:
        states = (
            _told(pynvml.nvmlDeviceGetNvLinkState, one, link)
            for link in range(pynvml.NVML_NVLINK_MAX_LINKS)
        )
        return f"NVLink, {sum(state == 1 for state in states)} links of the first are up"
    level = _told(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
    return "unknown" if level is None else LEVELS.get(level, f"level {level}")


def plain(text: str) -> str:
    """``text`` without the names of folders that say whose they are."""
    text = text.replace(f"{paths.ROOT}/", "").replace(str(paths.ROOT), ".")
    with suppress(RuntimeError):  # somebody without a home
        if Path.home() != Path("/"):  # as of nobody in particular in a container
            text = re.sub(rf"(?<![\w.-]){re.escape(str(Path.home()))}(?![\w.-])", "~", text)
    return re.sub(r"/(home|Users)/[^/\s:'\"]+", "~", text)


def _gpu(handle: Any) -> str:
    said = [devices.text(_told(pynvml.nvmlDeviceGetName, handle) or "name unknown")]
    capability = _told(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    said.append(f"generation {generation(capability) if capability else 'unknown'}")
    memory = _told(pynvml.nvmlDeviceGetMemoryInfo, handle)
    said.append(f"{memory.total / 2**30:.0f} GiB" if memory else "memory unknown")
    mode = _told(pynvml.nvmlDeviceGetMigMode, handle)
    on = mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    said.append("in MIG mode" if on else "no MIG")
    return ", ".join(said)


def _told(ask: Callable[..., Any], *of: Any) -> Any:
    """What NVML says; None where it does not."""
    with suppress(pynvml.NVMLError):
        return ask(*of)
    return None


def _distribution() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    return platform.system()
