"""What events mean, in words that charts, tables and warnings share."""

from __future__ import annotations

from typing import Any

from gpumon.units import mebibytes


def gpu_name(device: str) -> str:
    """A device's name for people: ``GPU 0``, ``GPU 0 MIG 1``."""
    return device.rpartition(":")[2].replace("gpu", "GPU ", 1).replace("-mig", " MIG ")


def neighbour(event: dict[str, Any]) -> str:
    """A process of somebody else's: ``python (4321, 812 MiB)``."""
    memory = event.get("memory (MiB)")
    size = "" if memory is None else f", {mebibytes(memory)}"
    return f"{event.get('name') or 'a process'} ({event['process']}{size})"


def shared(event: dict[str, Any]) -> str:
    """The warning of an event ``shared``."""
    return (
        f"{gpu_name(event['device'])} is shared with {neighbour(event)}: "
        "its figures are not the program's alone"
    )
