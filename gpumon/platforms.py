"""This module knows what gpumon cannot do on which operating system."""

from __future__ import annotations

import sys

from gpumon.errors import MonitorError


def check_can_record() -> None:
    """MonitorError where nothing can be recorded."""
    if sys.platform == "win32":
        raise MonitorError(
            "gpumon cannot record on Windows, which lacks the file locks and signals it needs; "
            "traces of other machines can be read, summarised, drawn and exported here"
        )


def unsupported() -> str | None:
    """What is not recorded on this system; None where nothing is missing for the system's sake."""
    if sys.platform == "linux":
        return None
    name = "macOS" if sys.platform == "darwin" else sys.platform
    return (
        f"on {name} gpumon records the host alone: no GPU, and no CPU, memory and limits of the "
        "program itself, which it reads on Linux only; it has not been tried there"
    )
