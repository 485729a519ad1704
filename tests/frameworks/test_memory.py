"""Freed memory is kept: using it again makes no new pages."""

import platform
import subprocess
import sys

import pytest

# Counts the page faults of filling 64 MiB for the second time, which was freed in between.
FAULTS = """
import resource, sys
from helpers.frameworks import memory
if sys.argv[1] == "kept":
    memory.keep_freed()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(2):
    before = faults()
    block = bytearray(b"1") * (1 << 26)
    del block
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_what_was_freed_is_used_again_without_new_pages() -> None:
    def faults(how: str) -> int:
        command = [sys.executable, "-c", FAULTS, how]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert faults("given back") > 1_000  # 16,384 pages of 4 KiB, or larger ones
    assert faults("kept") < 100
