"""Let only one command at a time work on an experiment, on all hosts of a shared filesystem.

The system releases a lock when its holder ends, however that ends.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from helpers import paths
from helpers.errors import UserError, naming

FOLDER = ".locks"
HANDOVER_SECONDS = 0.2
"""The time in which a holder that has just ended is gone."""


@contextmanager
def held(name: str, what: str, instead: str = "") -> Iterator[None]:
    """Hold the lock ``name``; if another process has it, an error says ``what`` and ``instead``."""
    path = paths.RUNS / FOLDER / f"{name}.lock"
    lock = FileLock(path, mode=0o644)
    try:
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=HANDOVER_SECONDS)
    except Timeout:
        raise UserError(f"{what}; wait for it or stop it{instead}") from None
    except NotImplementedError as error:
        raise UserError(f"{path}: this filesystem has no locks ({error})") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def only_one() -> Iterator[None]:
    """Refuse a second experiment on this machine, because both would disturb each other's times.

    Two Slurm jobs may run at the same time, because each has its own devices.
    """
    try:
        paths.RUNS.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{paths.RUNS}: a file, or a link that leads nowhere; remove it") from None
    job = os.environ.get("SLURM_JOB_ID", "")
    name = f"_on-{socket.gethostname()}" + (f"-job-{job}" if job.isalnum() else "")
    with held(name, "another rosetta run is active on this machine"):
        yield
