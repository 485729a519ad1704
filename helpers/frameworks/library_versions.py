"""The versions of NVIDIA's libraries that a framework computes with."""

from contextlib import suppress
from importlib import metadata
from itertools import product
from pathlib import Path

PACKAGES = {"cuda": "nvidia-cuda-runtime", "cudnn": "nvidia-cudnn", "nccl": "nvidia-nccl"}
"""By what a record calls them; their names end in CUDA's version, or not."""


def nvidia() -> dict[str, str]:
    """Those that are installed, on a machine with NVIDIA's driver."""
    found = {}
    if Path("/dev/nvidiactl").exists():
        for (name, package), end in product(PACKAGES.items(), ("", "-cu11", "-cu12", "-cu13")):
            with suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(package + end)
    return found
