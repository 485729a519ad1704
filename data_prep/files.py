"""What every writing command shares: whole files or none, one writer a folder, all cores."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import math
import multiprocessing
import os
import signal
import socket
import stat
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from data_prep.errors import DataError

Job = TypeVar("Job")
Result = TypeVar("Result")

#: Temporary files start with a dot and end so; no reader takes them for images.
TEMPORARY_SUFFIX = ".part-of-data-prep"
_HOST = zlib.crc32(socket.gethostname().encode())  # another has processes of the same numbers

#: A label file, a list or a note: for the whole NIH set they have up to 9 MB.
MAX_TEXT_BYTES = 256 << 20

DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)


def write_atomic(path: str | os.PathLike[str], data: bytes, *, durable: bool = False) -> None:
    """Write a file so that it is there whole or not at all, also when killed half-way.

    A power cut within half a minute may still leave the name without the bytes: for many files
    `sync` follows, for a single one `durable` waits until it is on the disk.
    """
    folder = os.path.dirname(path)  # noqa: PTH120 (speed)
    # Not made of the file's name, which may be as long as a name can be.
    mine = f".{_HOST:08x}-{os.getpid()}-{threading.get_ident()}{TEMPORARY_SUFFIX}"
    temporary = os.path.join(folder, mine)  # noqa: PTH118 (speed)
    try:
        # A stranger's folder may have a link of that name, out of it.
        how = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        handle = os.open(temporary, how, 0o666)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            if durable:
                _fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, path)  # noqa: PTH105 (speed)
        if durable:
            sync_file(folder or ".")  # the name is the folder's
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        if isinstance(error, OSError):  # of the file that was wanted, not of the temporary one
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise


def read_limited(path: str | os.PathLike[str], most: int) -> bytes:
    """A file's bytes.

    Raises `DataError` for what could hold a program up for ever or take all its memory: a pipe or a
    device, and a file of more than `most` bytes. Raises `OSError` as `open` does.
    """
    handle = _open_regular(path)  # not a file object, which takes as long again
    try:
        size = os.fstat(handle).st_size
        if size > most:
            raise DataError(f"{path}: {size:,} bytes, more than the {most:,} that are read")
        data = os.read(handle, size + 1)
        if len(data) == size:
            return data
        pieces = [data]  # it changes meanwhile, or says nothing of its size
        while pieces[-1]:
            pieces.append(os.read(handle, 1 << 20))
        return b"".join(pieces)
    finally:
        os.close(handle)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A file, open for reading. Raises `DataError` for a pipe or a device, `OSError` as `open`."""
    return os.fdopen(_open_regular(path), "rb", 0)


def _open_regular(path: str | os.PathLike[str]) -> int:
    # Without O_NONBLOCK, opening a pipe waits until somebody writes to it.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return handle
    os.close(handle)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise DataError(f"{path}: cannot be read (not a file but a pipe, a device or the like)")


def sync_filesystem(folder: str | os.PathLike[str]) -> None:
    """Wait until all that was written to the file system of a folder is on the disk.

    One call for a hundred thousand files, where `fsync` would wait for each. Raises `OSError` where
    the disk says that something could not be written, which Linux tells since 5.8.
    """
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:  # not Linux
        os.sync()
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        if syncfs(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), os.fspath(folder))
    finally:
        os.close(handle)


def sync_file(path: str | os.PathLike[str]) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        _fsync(handle)
    finally:
        os.close(handle)


def _fsync(handle: int) -> None:
    try:
        os.fsync(handle)
    except OSError as error:  # some network file systems have no such thing, of folders above all
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def write_json(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write a small JSON file, whole or not at all; when this returns it is on the disk."""
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode(), durable=True)


def read_json(
    path: str | os.PathLike[str], cure: str = "remove it and run again"
) -> dict[str, Any] | None:
    """A JSON file's object, or None where there is no such file; `cure` is for a damaged one."""
    try:
        content = json.loads(read_limited(path, MAX_TEXT_BYTES))
    except (FileNotFoundError, NotADirectoryError):  # the images may lie in an archive
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise DataError(f"{path}: damaged (nested too deeply); {cure}") from None
    except ValueError as error:
        raise DataError(f"{path}: damaged ({error}); {cure}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: damaged (not an object); {cure}")
    return content


def is_same_path(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same place, through whatever links."""
    # Not Path.resolve, which raises RuntimeError for links in a circle.
    return os.path.realpath(one) == os.path.realpath(other)


def is_nested(one: Path, other: Path) -> bool:
    """Whether a folder lies, at whatever depth, in the other."""
    here, there = Path(os.path.realpath(one)), Path(os.path.realpath(other))
    return here in there.parents or there in here.parents


def remove_temporary_files(folder: Path) -> None:
    """Remove temporary files that a killed run left in a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(TEMPORARY_SUFFIX):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)  # noqa: PTH108


LOCK_SECONDS = 5.0


@contextlib.contextmanager
def exclusive_lock(folder: Path, patience: float = LOCK_SECONDS) -> Iterator[None]:
    """Make the folder and hold it: a second writer would mix two results.

    The hold is on the folder itself, so nothing is left behind, and ends with the process. The
    workers of a run that was just killed may hold it for a moment longer, hence the patience, in
    seconds; who has more than that is told what is waited for.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except (FileExistsError, NotADirectoryError):
        raise DataError(f"{folder} is in the way: it is, or lies under, a file") from None
    except OSError as error:
        raise DataError(f"{folder} cannot be made ({error.strerror})") from None
    try:
        now = time.monotonic()
        until, told = now + patience, now + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise DataError(
                        f"{folder}: another data-prep is at work here; wait for it"
                    ) from None
                if time.monotonic() > told:
                    print(f"{folder}: waiting for another process that writes it", file=sys.stderr)
                    told = until
                time.sleep(0.1)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(handle)


def core_count() -> int:
    """The cores this process may use: by its affinity, its control group and its Slurm job."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return max(1, math.ceil(min(cores, core_limit())))


def core_limit() -> float:
    """The CPUs that its control group and its Slurm job let this process have at a time.

    It may be a fraction, such as 1.5, or infinite: which cores they are is said by its affinity.
    """
    limits = [*_cgroup_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")), *_slurm_limit()]
    return min([math.inf, *limits])


def _cgroup_limits(groups: Path, root: Path) -> Iterator[float]:
    """What each control group around this process lets it have, in CPUs.

    A container has a limit of its own at the top of what it sees, a job one somewhere below.
    """
    try:
        lines = groups.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    for _, kinds, name in (line.split(":", 2) for line in lines if line.count(":") >= 2):
        if kinds == "":
            top, files = root, ["cpu.max"]
        elif "cpu" in kinds.split(","):
            top, files = root / "cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        place = top / name.lstrip("/")
        for folder in (place, *place.parents):
            try:
                said = [(folder / file).read_text(encoding="ascii") for file in files]
                quota, period = " ".join(said).split()
                if int(quota) > 0 and int(period) > 0:
                    yield int(quota) / int(period)
            except (OSError, ValueError):  # no limit here, or "max"
                pass
            if folder == top:
                break


def _slurm_limit() -> Iterator[float]:
    """What Slurm gave this job on this node, also where it binds nobody to that."""
    said = os.environ.get("SLURM_CPUS_ON_NODE", "")
    if "SLURM_JOB_ID" in os.environ and said.isascii() and said.isdigit():
        yield int(said)


def in_batches(items: Sequence[Job], size: int) -> Iterator[Sequence[Job]]:
    """These items, so many at a time: the jobs of `map_in_processes`."""
    return (items[start : start + size] for start in range(0, len(items), size))


def map_in_processes(
    work: Callable[[Sequence[Job]], Result],
    jobs: Iterable[Sequence[Job]],
    num_workers: int | None = None,
) -> Iterator[Result]:
    """`work(batch)` for each batch of jobs in processes of their own, results as they come.

    Only a few batches are under way at a time, so that memory stays flat. When the caller stops
    early (an error, Ctrl-C) the batches under way are finished and the rest is dropped. Workers end
    by themselves when this process is killed.
    """
    num_workers = core_count() if num_workers is None else num_workers
    if num_workers < 1:
        raise DataError(f"num_workers is {num_workers}: use 1 or more")
    # fork starts in milliseconds and needs no importable main module, which a notebook lacks.
    method = "fork" if sys.platform == "linux" else "spawn"
    try:
        pool = ProcessPoolExecutor(
            num_workers,
            mp_context=multiprocessing.get_context(method),
            initializer=_start_worker,
            initargs=(os.getpid(),),
        )
    except (OSError, ValueError) as error:  # no memory to share, more workers than there can be
        raise _cannot_start(num_workers, error) from None
    waiting = iter(jobs)
    under_way: set[Future[Result]] = set()
    try:
        while True:
            for batch in waiting:
                with _interrupt_deferred():
                    under_way.add(_submit(pool, work, batch, num_workers))
                if len(under_way) >= 2 * num_workers:
                    break
            if not under_way:
                break
            with _interrupt_deferred():
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except BrokenProcessPool:
        raise DataError(
            "a worker process was killed, most often for want of memory;"
            " run the same command again, with fewer --num-workers"
        ) from None
    finally:
        with _interrupt_deferred():
            pool.shutdown(wait=True, cancel_futures=True)


def _submit(
    pool: ProcessPoolExecutor,
    work: Callable[[Sequence[Job]], Result],
    batch: Sequence[Job],
    num_workers: int,
) -> Future[Result]:
    """Hand a batch to a pool; the first time this starts its processes, all or none."""
    others = multiprocessing.active_children()
    try:
        return pool.submit(work, batch)
    except OSError as error:  # no more processes or open files are allowed
        # The pool forgets those it has started, which would wait for work for ever.
        for process in set(multiprocessing.active_children()).difference(others):
            process.kill()
            process.join()
        raise _cannot_start(num_workers, error) from None


def _cannot_start(num_workers: int, error: Exception) -> DataError:
    reason = getattr(error, "strerror", None) or error
    return DataError(
        f"{num_workers:,} worker processes cannot be started ({reason});"
        " run the same command again, with fewer --num-workers"
    )


@contextlib.contextmanager
def _interrupt_deferred() -> Iterator[None]:
    """Ctrl-C takes effect at the end of the block.

    KeyboardInterrupt amid a pool's own code can leave the lock of a future taken, for which the
    pool's thread then waits forever, or end a worker that has only just been forked.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield  # ignored anyway, or not raised in this thread
        return
    interrupts: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if interrupts:
            signal.raise_signal(signal.SIGINT)


def _start_worker(parent: int) -> None:
    # Ctrl-C reaches every process of the terminal; the parent alone decides what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    # Keep freed megabytes for the next image instead of giving them back to the system each time,
    # which would clear every page anew: a fifth of the time. Known to glibc only.
    with contextlib.suppress(OSError, AttributeError):
        c_library = ctypes.CDLL(None)
        for option, value in ((-3, 64 << 20), (-1, 256 << 20)):  # M_MMAP_, M_TRIM_THRESHOLD
            c_library.mallopt(option, value)


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
