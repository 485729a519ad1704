"""What frameworks compute with: a recipe's precision, NVIDIA's libraries, and the C library."""

import ctypes
import os
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from itertools import product
from pathlib import Path

from helpers.errors import UnsupportedError
from helpers.recipe.settings import PRECISIONS

PACKAGES = {"cuda": "nvidia-cuda-runtime", "cudnn": "nvidia-cudnn", "nccl": "nvidia-nccl"}
"""By what a record calls them; their names end in CUDA's version, or not."""
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # glibc's malloc.h
DTYPES = {"fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""What a recipe's precision computes convolutions and matrix products in."""

LEFT_TO_PYTORCH = {"fp16": "only PyTorch's notebooks scale the loss, without which it is useless"}
"""In the reasons of frameworks that could compute in it."""
WITHOUT_SWITCH = ("chainer", "chainermn", "mxnet")
"""The modules of frameworks with no switch of their own for TF32."""


def check_precision(precision: str, kind: str, skipped: Mapping[str, str]) -> None:
    """Raise UnsupportedError if the framework's ``skipped`` has a reason against ``precision``."""
    reason = skipped.get(precision)
    if precision == "tf32" and kind != "gpu":
        reason = "TF32 is a mode of NVIDIA's tensor cores"
    if reason:
        *first, last = [name for name in PRECISIONS if name not in {"tf32", *skipped}]
        others = f"{', '.join(first)} or {last}" if first else last
        raise UnsupportedError(f"precision {precision}: {reason}; use {others}")


def allow_tf32(allowed: bool) -> None:
    """For :data:`WITHOUT_SWITCH`, before the framework's import: CUDA's libraries read it once."""
    os.environ["CUPY_TF32"] = str(int(allowed))
    if allowed:
        os.environ.pop("NVIDIA_TF32_OVERRIDE", None)
    else:
        os.environ["NVIDIA_TF32_OVERRIDE"] = "0"


def tf32_allowed() -> bool:
    """Whether :func:`allow_tf32` has allowed it in this process."""
    return os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"


def nvidia() -> dict[str, str]:
    """The versions that are installed, on a machine with NVIDIA's driver."""
    found = {}
    if Path("/dev/nvidiactl").exists():
        for (name, package), end in product(PACKAGES.items(), ("", "-cu11", "-cu12", "-cu13")):
            with suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(package + end)
    return found


def keep_freed() -> None:
    """Let this process keep memory for its next large arrays: glibc gives it back (mallopt(3))."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(_MMAP_MAX, 0)  # large blocks from the heap as well
    mallopt(_TRIM_THRESHOLD, -1)  # whose end is never cut off
