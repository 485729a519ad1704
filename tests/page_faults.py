"""Whether a process gets the memory again that it freed, or new pages."""

import platform
import subprocess
import sys

import pytest

_FILL_TWICE = """
import resource
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(2):
    before = faults()
    block = bytearray(b"1") * (1 << 26)
    del block
print(faults() - before)
"""
GIVEN_BACK, KEPT = 1_000, 100
"""More and fewer than these there are; 64 MiB have 16,384 pages of 4 KiB, or larger ones."""

only_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")


def of_filling_again(setup: str) -> int:
    """Page faults of filling 64 MiB for the second time, freed in between, after these lines."""
    command = [sys.executable, "-c", f"{setup}\n{_FILL_TWICE}"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
