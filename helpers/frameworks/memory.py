"""Tune the host's memory allocation, and explain when a GPU runs out of memory."""

import ctypes
from collections.abc import Sequence

import pynvml

from helpers.errors import UserError

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # glibc's malloc.h

RAN_OUT = ("out of memory", "OUT_OF_MEMORY", "STATUS_ALLOC_FAILED")
"""How CUDA, cuBLAS, cuDNN and NCCL say that memory ran out, in whichever framework: the runtime's
text, the driver's name of the error, and the libraries'."""


def free_on_gpus(uuids: Sequence[str]) -> int:
    """MiB that are free on the fullest of these GPUs, or MIG instances.

    Raises:
        UserError: the driver does not report it, as on machines whose GPU has no memory of its own.
    """
    try:
        return _least(uuids, "free") >> 20
    except pynvml.NVMLError as error:
        raise UserError(
            f"the driver does not report the GPUs' free memory ({error}), so replicas cannot share "
            "it; ask for one device per GPU"
        ) from None


def of_smallest_gpu(uuids: Sequence[str]) -> int | None:
    """Bytes of memory that the smallest of these GPUs has; None of none, or where it is unknown."""
    try:
        return _least(uuids, "total") if uuids else None
    except pynvml.NVMLError:
        return None


def _least(uuids: Sequence[str], figure: str) -> int:
    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        return min(int(getattr(pynvml.nvmlDeviceGetMemoryInfo(one), figure)) for one in handles)
    finally:
        pynvml.nvmlShutdown()


def keep_freed() -> None:
    """Let this process keep the memory it frees, for its next large arrays.

    glibc gives large blocks back to the system at once and gets new ones, empty ones, for the next
    step: every page of them is made and zeroed again. Frameworks' GPU memory is kept in pools for
    the same reason, and most of them have one on the host too. Elsewhere than on glibc this does
    nothing. Source: mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)  # large blocks from the heap as well
        mallopt(_TRIM_THRESHOLD, -1)  # whose end is never cut off
