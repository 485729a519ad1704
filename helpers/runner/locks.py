"""Let only one command at a time work on an experiment, on all hosts of a shared filesystem.

A lock is a file in ``runs/.locks`` that its holder has locked and that names it. The system
releases the lock when the holder ends, but some network filesystems do not show locks to other
hosts. A lock is therefore taken over only if the named process has certainly ended.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from data_prep.errors import printable
from helpers import paths
from helpers.errors import UserError, naming
from helpers.launch import processes

FOLDER = ".locks"
LONGEST = 10_000
"""The maximum size of such a file, in bytes."""
HANDOVER_SECONDS = 0.2
"""The time in which a holder that has just ended removes its lock."""
_FIELDS = {"process": int, "host": str, "since": str}
_JOB = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_RESTART_COUNT")


class HeldError(UserError):
    """Another process has the lock, or may have it."""


@contextmanager
def held(path: Path, what: str, instead: str = "") -> Iterator[None]:
    """Hold the lock at ``path`` during the block, and remove it afterwards.

    Raises:
        HeldError: another process has the lock, or may still have it; the message begins with
            ``what``, and ends with an alternative, ``instead``.
    """
    lock = FileLock(path, mode=0o644)
    try:
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=HANDOVER_SECONDS)
    except Timeout:
        who = _who(_read(path))
        raise HeldError(f"{what} ({who}); wait for it or stop it{instead}") from None
    try:
        said = _read(path)
        if said is not None and not _is_over(said):
            unsure = processes.runs(said) is None
            known = "this host cannot check whether it still runs" if unsure else "it runs"
            raise HeldError(
                f"{what} ({_who(said)}): {known}. If it has ended, remove {path} and start "
                f"again{instead}"
            )
        own = processes.own() | _job() | {"since": datetime.now(UTC).isoformat(timespec="minutes")}
        with naming(path):
            path.write_text(json.dumps(own), encoding="utf-8")
        try:
            yield
        finally:
            with suppress(OSError):  # then it names a process that has ended
                path.unlink()  # while it is ours
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
    with held(of_machine(), "another rosetta run is active on this machine"):
        yield


def of_batch(name: str) -> Path:
    """The lock of an experiment; other locks' names begin with ``_``, as no experiment's does."""
    return paths.RUNS / FOLDER / f"{name}.json"


def of_machine() -> Path:
    """The lock of this machine, or of a Slurm job on it, which has devices of its own."""
    job = os.environ.get("SLURM_JOB_ID", "")
    part = f"-job-{job}" if re.fullmatch(r"\w{1,40}", job, re.ASCII) else ""
    return of_batch(f"_on-{processes.here()[:64]}{part}")


def in_job() -> bool:
    """Whether this process is in a Slurm job."""
    return bool(_job())


def may_be_held(path: Path) -> bool:
    """Whether there is a lock whose process has not certainly ended."""
    said = _read(path)
    return said is not None and not _is_over(said)


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


def _read(path: Path) -> dict[str, Any] | None:
    """The holder's entry; None if it is missing or not valid."""
    try:
        with path.open("rb") as file:
            said = json.loads(file.read(LONGEST))
        sound = all(type(said[name]) is kind for name, kind in _FIELDS.items())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return said if sound and 0 <= said["process"] < 2**31 else None


def _who(said: Mapping[str, Any] | None) -> str:
    if said is None:
        return "its process is unknown"
    job = f"job {str(said['job']).split()[-1]}, " if said.get("job") else ""
    return printable(f"{job}{processes.named(said)}, since {said['since']}")[:200]
