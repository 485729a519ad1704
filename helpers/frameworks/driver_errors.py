"""Explain an NVIDIA driver that is installed but does not start, and how to fix it.

`make envs` imports this before anything is installed, so it uses only Python's standard library and
no syntax newer than Python 3.9.
"""

from __future__ import annotations

ABSENT = (9, 12)
"""NVML's codes on a machine without a GPU to use: driver not loaded, library not found."""

CURES = {
    4: "check the permissions of /dev/nvidia*; in a container, start it with GPU access (--gpus "
    "all), which its device cgroup must allow",
    18: "reboot, or reload the kernel modules (sudo rmmod nvidia_uvm nvidia && sudo modprobe "
    "nvidia): the driver was updated while an older one was loaded",
    999: "in a container, restart it with the GPU runtime once nvidia-smi works on the host; "
    "elsewhere, reboot",
}
"""The usual cure of an NVML error, by its code."""


def message(code: int, said: str) -> str:
    """One line about a driver that does not start.

    Args:
        code: NVML's, and none of ``ABSENT``.
        said: the driver's own words for the code.
    """
    cure = CURES.get(code, "run nvidia-smi, which shows whether the driver works")
    return f"the NVIDIA driver does not start: {said} (NVML error {code}); {cure}"
