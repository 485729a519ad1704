"""Keep the stderr messages of native code out of a notebook while a library is imported."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def dropped(*remarks: str) -> Iterator[None]:
    """Inside, a line on stderr that holds one of ``remarks`` is dropped; others come at the end.

    Of the whole process: native code writes there itself, past ``sys.stderr``.
    """
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            said.seek(0)
            for line in said:
                if not any(remark.encode() in line for remark in remarks):
                    os.write(2, line)
