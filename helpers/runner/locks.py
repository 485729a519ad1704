"""Who works on an experiment: one command at a time, on whatever host of a shared filesystem.

A lock is a file in ``runs/.locks`` that its holder has locked (``flock``) and that says who he is.
The system lets go of it when the holder ends; but not every network filesystem tells other hosts of
it. So what the file says counts as well: it is taken over only where the process that it names has
ended for certain.
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
"""Bytes of such a file."""
_FIELDS = {"process": int, "host": str, "since": str}
_JOB = ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_RESTART_COUNT")


class HeldError(UserError):
    """Somebody else has it, or may have it."""


@contextmanager
def held(path: Path, what: str, instead: str = "") -> Iterator[None]:
    """Nobody else has the lock at ``path`` inside; it is gone afterwards.

    Args:
        what: that is worked on, as the message begins.
        instead: what else to do, as it ends.

    Raises:
        HeldError: somebody else has it, or nobody can tell here whether somebody still has.
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
    """Two experiments at once on one machine would measure each other: the second one is refused.

    But for two of Slurm's jobs, which have devices of their own.

    Raises:
        UserError: another one runs, or there can be no folder for runs.
    """
    try:
        paths.RUNS.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{paths.RUNS}: a file, or a link that leads nowhere; remove it") from None
    with held(of_machine(), "another compare is running here"):
        yield


def of_batch(name: str) -> Path:
    """The lock of an experiment."""
    return paths.RUNS / FOLDER / f"{name}.json"


def of_queueing(name: str) -> Path:
    """The lock of who hands jobs of this name to Slurm."""
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
    """Whether a lock is there that names a process of which nobody here knows that it has ended."""
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
            if not _is_still(file, path):  # its holder has just taken it away
                os.close(file)
                continue
            said = _read(os.pread(file, LONGEST, 0))
            if said is not None and not _is_over(said):
                unsure = processes.runs(said) is None
                how_told = "nobody can tell here whether it still runs" if unsure else "it runs"
                raise HeldError(
                    f"{what} ({_who(said)}): {how_told}. If it has ended, remove {path} and start "
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
    """Whether who wrote this has ended for certain: a job that Slurm began again has, too."""
    return processes.runs(said) is False or (
        said.get("job") is not None
        and said["job"] == _job().get("job")
        and said.get("starts") != _job().get("starts")
    )


def _job() -> dict[str, Any]:
    """The Slurm job that this process is in, and how often it was begun again; else nothing."""
    cluster, job, starts = (os.environ.get(name, "") for name in _JOB)
    return {"job": f"{cluster} {job}", "starts": starts or "0"} if job else {}


def _read(text: bytes) -> dict[str, Any] | None:
    """What a holder wrote; None where it was not yet or is nothing that we would write."""
    try:
        said = json.loads(text)
        sound = all(type(said[name]) is kind for name, kind in _FIELDS.items())
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return said if sound and 0 <= said["process"] < 2**31 else None


def _who(said: Mapping[str, Any] | None) -> str:
    if said is None:
        return "it has not said who it is"
    job = f"job {str(said['job']).split()[-1]}, " if said.get("job") else ""
    return printable(f"{job}{processes.named(said)}, since {said['since']}")[:200]
