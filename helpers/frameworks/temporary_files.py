"""Give a run's processes a temporary folder of their own, which is removed with the run.

A process that is killed cannot clean up: its sockets, IPython's profile and compilers' caches stay.
So kernels, self-tests and replicas get a folder of their own as ``TMPDIR``. The process that
started them removes it once they have ended.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock

LONGEST = 75
"""Bytes of a folder's name: a socket's has 107, of which multiprocessing's own take 32."""

LOCK = ".lock"
"""A file in each folder that a process of its run has locked."""
HOST = ".host"
"""A file in each folder: of which machine its processes are, which may share a disk with others."""


def takes_sockets(folder: str) -> bool:
    """Whether replicas can meet in ``folder``, by a socket's name and by an address.

    In an address ``#`` and ``?`` end the path.
    """
    return len(os.fsencode(folder)) <= LONGEST and not {"#", "?"} & set(folder)


@contextmanager
def own(prefix: str) -> Iterator[str]:
    """A folder whose name begins with ``prefix``; removed at the end, whatever is in it then.

    It is in the temporary folder, or in ``/tmp`` where sockets could not be in that. Those that
    killed processes of this machine have left under the same prefix are removed first: no process
    locks them.
    """
    given = tempfile.gettempdir()
    parent = given if takes_sockets(f"{given}/{prefix}12345678") else "/tmp"
    for left in Path(parent).glob(f"{prefix}*"):
        _remove_left(left)
    process = os.getpid()
    folder = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=parent))
    (folder / HOST).write_text(socket.gethostname(), encoding="utf-8")
    with ExitStack() as held:
        with suppress(OSError):  # a network's folder may have no locks: none is removed there
            held.enter_context(FileLock(folder / LOCK, timeout=0))
        shown = folder.with_name(folder.name[1:])
        folder.rename(shown)  # only now, as a folder without a lock is removed
        try:
            yield str(shown)
        finally:
            if os.getpid() == process:  # not one that it forked
                shutil.rmtree(shown, ignore_errors=True)


def _remove_left(left: Path) -> None:
    """Remove a folder that a killed process of this machine left; no process locks it."""
    if left.is_symlink():
        return
    with suppress(OSError), FileLock(left / LOCK, timeout=0):  # else it is in use, or not ours
        if (left / HOST).read_text(encoding="utf-8") == socket.gethostname():
            shutil.rmtree(left, ignore_errors=True)
