"""The connections between a machine's GPUs, as its driver reports them."""

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pynvml

LEVELS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "one board",
    pynvml.NVML_TOPOLOGY_SINGLE: "one PCIe switch (PIX)",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "several PCIe switches (PXB)",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "the CPU's PCIe bridge (PHB)",
    pynvml.NVML_TOPOLOGY_NODE: "bridges of one NUMA node (NODE)",
    pynvml.NVML_TOPOLOGY_SYSTEM: "the link between CPUs (SYS)",
}
"""What data passes between two GPUs without NVLink, with the words of ``nvidia-smi topo -m``."""


def pairs() -> list[str]:
    """``GPUs 0-1: NVLink, 18 links of the first are up``; ``all pairs of 8 GPUs: ...`` where equal.

    Nothing without a driver or with one GPU.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        count = query(pynvml.nvmlDeviceGetCount) or 0
        handles = [query(pynvml.nvmlDeviceGetHandleByIndex, number) for number in range(count)]
        reached = [(number, handle) for number, handle in enumerate(handles) if handle]
        found = {
            f"GPUs {one}-{other}": between(left, right)
            for (one, left), (other, right) in itertools.combinations(reached, 2)
        }
        if len(found) > 1 and len(set(found.values())) == 1:
            return [f"all pairs of {len(reached)} GPUs: {next(iter(found.values()))}"]
        return [f"{pair}: {way}" for pair, way in found.items()]
    finally:
        query(pynvml.nvmlShutdown)


def between(one: Any, other: Any) -> str:
    """The connection between two GPUs, as the driver reports it."""
    nvlink = query(pynvml.nvmlDeviceGetP2PStatus, one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    if nvlink == pynvml.NVML_P2P_STATUS_OK:
        states = (
            query(pynvml.nvmlDeviceGetNvLinkState, one, link)
            for link in range(pynvml.NVML_NVLINK_MAX_LINKS)
        )
        return f"NVLink, {sum(state == 1 for state in states)} links of the first are up"
    level = query(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
    return "unknown" if level is None else LEVELS.get(level, f"level {level}")


def query(ask: Callable[..., Any], *of: Any) -> Any:
    """The answer of an NVML function; None where it fails."""
    with suppress(pynvml.NVMLError):
        return ask(*of)
    return None
