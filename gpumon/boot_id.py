"""This module reads the identifier of the machine's current boot."""

from __future__ import annotations

import contextlib
from pathlib import Path


def boot_id() -> str | None:
    """An identity of this boot: processes of one boot share their monotonic clock."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return None
