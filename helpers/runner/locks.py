"""Let only one command at a time work on an experiment, on all hosts of a shared filesystem.

A lock is a file in ``runs/.locks`` that its holder has locked (``flock``) and that names it.
The system releases the lock when the holder ends, but some network filesystems do not show locks to
other hosts. A lock is therefore taken over only if the named process has certainly ended.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from data_prep.errors import printable
from helpers import paths
from helpers.errors import UserError, naming
from helpers.launch import processes

FOLDER = ".locks"
LONGEST = 10_000
"""The maximum size of such a file, in bytes."""
_FIELDS = {"process": int, "host": str, "since": str}
_JOB = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_RESTART_COUNT")


class HeldError(UserError):
    """Another process has the lock, or may have it."""


@contextmanager
def held(path: Path, what: str, instead: str = "") -> Iterator[None]:
    """Hold the lock at ``path`` during the block, and remove it afterwards.

    Args:
        path: the lock's file.
        what: the start of the error message.
        instead: the end of the error message, with an alternative.
    """
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _opened(path, what, instead)
    try:
        with naming(path):
            said = (
                processes.own()
                | _job()
                | {"since": datetime.now(UTC).isoformat(timespec="minutes")}
            )
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(said).encode(), 0)
            os.fsync(file)
        yield
    finally:
        with suppress(OSError):  # then it names a process that has ended
            path.unlink()  # while it is ours
        os.close(file)


@contextmanager
def only_one() -> Iterator[None]:
    """Refuse a second experiment on this machine, because both would disturb each other's times.

    Two Slurm jobs may run at the same time, because each has its own devices.
    """
    try:
        paths.RUNS.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{paths.RUNS}: a file, or a link that leads nowhere; remove it") from None
    with held(of_machine(), "another rosetta run is active on this machine"):
        yield


def of_batch(name: str) -> Path:
    """The lock of an experiment."""
    return paths.RUNS / FOLDER / f"{name}.json"


def of_queueing(name: str) -> Path:
    """The lock of the command that queues jobs of this name."""
    return paths.RUNS / FOLDER / f"_queueing-{name}.json"


def of_machine() -> Path:
    """The lock of this machine, or of a Slurm job on it, which has devices of its own."""
    job = os.environ.get("SLURM_JOB_ID", "")
    part = f"-job-{job}" if re.fullmatch(r"\w{1,40}", job, re.ASCII) else ""
    return paths.RUNS / FOLDER / f"_on-{processes.here()[:64]}{part}.json"


def in_job() -> bool:
    """Whether this process is in a Slurm job."""
    return bool(_job())


def may_be_held(path: Path) -> bool:
    """Whether there is a lock whose process has not certainly ended."""
    try:
        said = _read(path.read_bytes()[:LONGEST])
    except OSError:
        return False
    return said is not None and not _is_over(said)


def _opened(path: Path, what: str, instead: str) -> int:
    """The file, locked by this process."""
    how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        file = os.open(path, how, 0o644)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                who = _who(_read(os.pread(file, LONGEST, 0)))
                raise HeldError(f"{what} ({who}); wait for it or stop it{instead}") from None
            if not _is_still(file, path):  # its holder has just removed it
                os.close(file)
                continue
            said = _read(os.pread(file, LONGEST, 0))
            if said is not None and not _is_over(said):
                unsure = processes.runs(said) is None
                known = "this host cannot check whether it still runs" if unsure else "it runs"
                raise HeldError(
                    f"{what} ({_who(said)}): {known}. If it has ended, remove {path} and start "
                    f"again{instead}"
                )
            return file
        except BaseException:
            os.close(file)
            raise


def _is_still(file: int, path: Path) -> bool:
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(file), there)


def _is_over(said: Mapping[str, Any]) -> bool:
    """Whether the lock's writer has certainly ended; a job that Slurm restarted has."""
    return processes.runs(said) is False or (
        said.get("job") is not None
        and said["job"] == _job().get("job")
        and said.get("starts") != _job().get("starts")
    )


def _job() -> dict[str, Any]:
    """This process's Slurm job and the number of its restarts; empty outside a job."""
    cluster, job, starts = (os.environ.get(name, "") for name in _JOB)
    return {"job": f"{cluster} {job}", "starts": starts or "0"} if job else {}


def _read(text: bytes) -> dict[str, Any] | None:
    """The holder's entry; None if it is missing or not valid."""
    try:
        said = json.loads(text)
        sound = all(type(said[name]) is kind for name, kind in _FIELDS.items())
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return said if sound and 0 <= said["process"] < 2**31 else None


def _who(said: Mapping[str, Any] | None) -> str:
    if said is None:
        return "its process is unknown"
    job = f"job {str(said['job']).split()[-1]}, " if said.get("job") else ""
    return printable(f"{job}{processes.named(said)}, since {said['since']}")[:200]
