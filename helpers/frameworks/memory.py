"""Tune the host's memory allocation, and ask how much of the GPUs' is free."""

import ctypes
from collections.abc import Sequence

import pynvml

from helpers.errors import UserError

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # glibc's malloc.h


def free_on_gpus(uuids: Sequence[str]) -> int:
    """MiB that are free on the fullest of these GPUs, or MIG instances.

    Raises:
        UserError: the driver does not report it, as on machines whose GPU has no memory of its own.
    """
    try:
        return _free(uuids) >> 20
    except pynvml.NVMLError as error:
        raise UserError(
            f"the driver does not report the GPUs' free memory ({error}), so replicas cannot share "
            "it; ask for one device per GPU"
        ) from None


def _free(uuids: Sequence[str]) -> int:
    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]
        return min(int(pynvml.nvmlDeviceGetMemoryInfo(one).free) for one in handles)
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
