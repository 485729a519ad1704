"""Give a run's processes a temporary folder, ``TMPDIR``, which is removed with the run.

A process that is killed cannot clean up: its sockets, IPython's profile and compilers' caches stay.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 75
"""Bytes of a folder's name: a socket's has 107, of which multiprocessing's own take 32."""


def takes_sockets(folder: str) -> bool:
    """Whether replicas can meet in ``folder``, by a socket's name and by an address.

    In an address ``#`` and ``?`` end the path.
    """
    return len(os.fsencode(folder)) <= LONGEST and not {"#", "?"} & set(folder)


@contextmanager
def own(prefix: str) -> Iterator[str]:
    """A folder whose name begins with ``prefix``; removed at the end, whatever is in it then.

    It is in the temporary folder, or in ``/tmp`` where sockets could not be in that.
    """
    given = tempfile.gettempdir()
    parent = given if takes_sockets(f"{given}/{prefix}12345678") else "/tmp"
    with tempfile.TemporaryDirectory("", prefix, parent, ignore_cleanup_errors=True) as folder:
        yield folder
