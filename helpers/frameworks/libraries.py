"""What frameworks compute with: NVIDIA's libraries, whose versions count, and the C library."""

import ctypes
from contextlib import suppress
from importlib import metadata
from itertools import product
from pathlib import Path

PACKAGES = {"cuda": "nvidia-cuda-runtime", "cudnn": "nvidia-cudnn", "nccl": "nvidia-nccl"}
"""By what a record calls them; their names end in CUDA's version, or not."""
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # glibc's malloc.h


def nvidia() -> dict[str, str]:
    """The versions that are installed, on a machine with NVIDIA's driver."""
    found = {}
    if Path("/dev/nvidiactl").exists():
        for (name, package), end in product(PACKAGES.items(), ("", "-cu11", "-cu12", "-cu13")):
            with suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(package + end)
    return found


def keep_freed() -> None:
    """Let this process keep the memory it frees, for its next large arrays.

    glibc gives large blocks back to the system at once, and every page of the next step's is made
    and zeroed again. Source: mallopt(3).
    """
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_MMAP_MAX, 0)  # large blocks from the heap as well
    mallopt(_TRIM_THRESHOLD, -1)  # whose end is never cut off
