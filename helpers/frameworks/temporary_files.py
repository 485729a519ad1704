"""Give a run's processes a temporary folder of their own, which is removed with the run.

A process that is killed cannot clean up: its sockets, IPython's profile and compilers' caches stay.
So kernels, self-tests and replicas get a folder of their own as ``TMPDIR``. The process that
started them removes it once they have ended.
"""

import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

LONGEST = 75
"""Bytes of a folder's name: a socket's has 107, of which multiprocessing's own take 32."""

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
        _remove(left)
    process = os.getpid()
    folder = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=parent))
    (folder / HOST).write_text(socket.gethostname(), encoding="utf-8")
    with ExitStack() as held:
        with suppress(OSError):  # a network's folder may have no locks: none is removed there
            held.enter_context(_locked(folder))
        shown = folder.with_name(folder.name[1:])
        folder.rename(shown)  # only now, as a folder without a lock is removed
        try:
            yield str(shown)
        finally:
            if os.getpid() == process:  # not one that it forked
                shutil.rmtree(shown, ignore_errors=True)


def _remove(left: Path) -> None:
    with suppress(OSError), _locked(left):  # else it is in use, or another user's
        if (left / HOST).read_text(encoding="utf-8") == socket.gethostname():
            shutil.rmtree(left, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock that ends with this process; what it starts does not inherit it.

    Raises:
        OSError: another process holds it, or it is no folder of ours.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)
