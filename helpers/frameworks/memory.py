"""Tune the host's memory allocation."""

import ctypes

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # glibc's malloc.h


def keep_freed() -> None:
    """Let this process keep the memory it frees, for its next large arrays.

    glibc gives large blocks back to the system at once, and every page of the next step's is made
    and zeroed again. Elsewhere than on glibc this does nothing. Source: mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)  # large blocks from the heap as well
        mallopt(_TRIM_THRESHOLD, -1)  # whose end is never cut off
