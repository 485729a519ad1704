"""Write files atomically, lock folders, count CPU cores and run work in processes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import math
import multiprocessing
import os
import re
import signal
import socket
import stat
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from data_prep.errors import DataError

Job = TypeVar("Job")
Result = TypeVar("Result")

#: Temporary files start with a dot and end with this suffix.
TEMPORARY_SUFFIX = ".part-of-data-prep"
_HOST = zlib.crc32(socket.gethostname().encode())  # another host may use the same process ids

#: A label file, a list or a note: for the whole NIH set they have up to 9 MB.
MAX_TEXT_BYTES = 256 << 20

DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)


def write_atomic(
    path: str | os.PathLike[str], data: bytes, *, durable: bool = False, mode: int = 0o666
) -> None:
    """Write a file that exists completely or not at all, even if the process is killed.

    After a power cut too with `durable`; for many files call `sync_filesystem` afterwards.
    """
    folder = os.path.dirname(path)  # noqa: PTH120 (speed)
    # Without the file's name, which may have the maximum length already.
    name = f".{_HOST:08x}-{os.getpid()}-{threading.get_ident()}{TEMPORARY_SUFFIX}"
    temporary = os.path.join(folder, name)  # noqa: PTH118 (speed)
    try:
        # An untrusted folder may contain a link of this name that leads out of the folder.
        how = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        handle = os.open(temporary, how, mode)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
        finally:
            os.close(handle)
        if durable:
            sync_file(temporary)
        os.replace(temporary, path)  # noqa: PTH105 (speed)
        if durable:
            sync_file(folder or ".")  # the folder stores the name
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        if isinstance(error, OSError):  # name the requested file, not the temporary file
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise


def read_limited(path: str | os.PathLike[str], most: int) -> bytes:
    """Return a file's bytes."""
    handle = _open_regular(path)  # a file object would take twice as long
    try:
        size = os.fstat(handle).st_size
        if size > most:
            raise DataError(f"{path}: {size:,} bytes, more than the maximum of {most:,}")
        data = os.read(handle, size + 1)
        if len(data) == size:
            return data
        pieces = [data]  # the file changes meanwhile, or its size is unknown
        while pieces[-1]:
            pieces.append(os.read(handle, 1 << 20))
        return b"".join(pieces)
    finally:
        os.close(handle)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading. Raises `DataError` for a pipe or a device, `OSError` as `open`."""
    return os.fdopen(_open_regular(path), "rb", 0)


def _open_regular(path: str | os.PathLike[str]) -> int:
    # Without O_NONBLOCK, opening a pipe waits until another process writes to it.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return handle
    os.close(handle)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise DataError(f"{path}: cannot be read (not a file but a pipe, a device or the like)")


def sync_filesystem(folder: str | os.PathLike[str]) -> None:
    """Wait until everything written to the file system of a folder is on the disk.

    This is one call for a hundred thousand files, whereas `fsync` would wait for each file.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), os.fspath(folder))
    finally:
        os.close(handle)


def sync_file(path: str | os.PathLike[str]) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:  # some network file systems cannot sync, folders in particular
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def write_json(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write a small JSON file atomically and wait until it is on the disk."""
    write_atomic(path, (json.dumps(content, indent=2) + "\n").encode(), durable=True)


def read_json(
    path: str | os.PathLike[str], repair_hint: str = "remove it and run again"
) -> dict[str, Any] | None:
    """Return a JSON file's object, or None without such a file; `repair_hint` ends error texts."""
    try:
        content = json.loads(read_limited(path, MAX_TEXT_BYTES))
        if not isinstance(content, dict):
            raise ValueError("not an object")
    except (FileNotFoundError, NotADirectoryError):  # the images may lie in an archive
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: damaged ({error}); {repair_hint}") from None
    return content


def is_same_path(one: Path, other: Path) -> bool:
    """Return whether two paths lead to the same file or folder, also through links."""
    # Not Path.resolve, which raises RuntimeError for links in a circle.
    return os.path.realpath(one) == os.path.realpath(other)


def is_nested(one: Path, other: Path) -> bool:
    """Return whether one of two folders is inside the other, at any depth."""
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
def exclusive_lock(folder: Path, timeout: float = LOCK_SECONDS) -> Iterator[None]:
    """Create the folder and lock it, because a second writer would mix two results.

    The workers of a run that was just killed may hold it a moment longer, so this waits.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except (FileExistsError, NotADirectoryError):
        raise DataError(f"{folder} is a file or lies under a file; name a folder") from None
    except OSError as error:
        raise DataError(f"{folder} cannot be created ({error.strerror})") from None
    started, announced = time.monotonic(), False
    try:
        while not _locked(handle):
            waited = time.monotonic() - started
            if waited > timeout:
                raise DataError(f"{folder}: another data-prep is writing here; wait until it ends")
            if waited > LOCK_SECONDS and not announced:
                announced = True
                print(f"{folder}: waiting for another process that is writing it", file=sys.stderr)
            time.sleep(0.1)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def core_count() -> int:
    """Return the number of cores this process may use, by affinity, control group and Slurm job."""
    return max(1, math.ceil(min(len(os.sched_getaffinity(0)), core_limit())))


def core_limit() -> float:
    """Return the number of CPUs that control groups and the Slurm job allow this process."""
    limits = [math.inf, *_cgroup_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))]
    slurm = os.environ.get("SLURM_CPUS_ON_NODE", "")
    if "SLURM_JOB_ID" in os.environ and slurm.isdecimal():  # Slurm may not enforce them
        limits.append(int(slurm))
    return min(limits)


def _cgroup_limits(groups: Path, root: Path) -> Iterator[float]:
    """Yield the limit of this process's control group (version 2) and of each group around it."""
    with contextlib.suppress(OSError):
        found = re.search("^0::/(.*)$", groups.read_text(encoding="utf-8"), re.MULTILINE)
        place = root / found[1] if found else root
        for folder in (place, *place.parents):
            with contextlib.suppress(OSError, ValueError):  # no limit here, or "max"
                quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
                yield int(quota) / int(period)
            if folder == root:
                return


def map_in_processes(
    work: Callable[[Job], Result],
    jobs: Iterable[Job],
    batch_size: int,
    num_workers: int | None = None,
) -> Iterator[list[Result]]:
    """Yield the results of `work(job)` in batches, as they arrive from worker processes.

    Only a few batches are in progress at a time. If the caller stops early (an error, Ctrl-C), they
    are finished and the rest is dropped. Workers end when this process is killed.
    """
    num_workers = core_count() if num_workers is None else num_workers
    if num_workers < 1:
        raise DataError(f"num_workers is {num_workers}: use 1 or more")
    # fork starts in milliseconds and needs no importable main module, which a notebook lacks.
    pool = ProcessPoolExecutor(
        num_workers,
        mp_context=multiprocessing.get_context("fork"),
        initializer=_start_worker,
        initargs=(os.getpid(),),
    )
    waiting = iter(jobs)
    batches = iter(lambda: list(islice(waiting, batch_size)), [])
    under_way: set[Future[list[Result]]] = set()
    try:
        while True:
            for batch in islice(batches, 2 * num_workers - len(under_way)):
                with _interrupt_deferred():
                    under_way.add(_submit(pool, work, batch, num_workers))
            if not under_way:
                break
            with _interrupt_deferred():
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except BrokenProcessPool:
        why = "a worker process was killed, most often by a lack of memory"
        raise DataError(f"{why}; run again, with fewer --num-workers") from None
    finally:
        with _interrupt_deferred():
            pool.shutdown(wait=True, cancel_futures=True)


def with_progress(
    batches: Iterable[list[Result]], what: str, total: int, progress: bool, done: int = 0
) -> Iterator[list[Result]]:
    """Yield the batches, and count their images in a progress bar."""
    from tqdm import tqdm

    hide = not progress or None  # None: where there is no terminal
    with tqdm(total=total, initial=done, desc=what, unit=" images", disable=hide) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch))


def _submit(
    pool: ProcessPoolExecutor, work: Callable[[Job], Result], batch: list[Job], num_workers: int
) -> Future[list[Result]]:
    """Submit a batch to a pool; the first call starts the processes, all or none."""
    others = multiprocessing.active_children()
    try:
        return pool.submit(_do_batch, work, batch)
    except OSError as error:  # no more processes or open files are allowed
        # The pool forgets the started processes, which would wait for work for ever.
        for process in set(multiprocessing.active_children()).difference(others):
            process.kill()
            process.join()
        what = f"{num_workers:,} worker processes cannot be started ({error.strerror})"
        raise DataError(f"{what}; run again, with fewer --num-workers") from None


def _do_batch(work: Callable[[Job], Result], batch: list[Job]) -> list[Result]:
    return [work(job) for job in batch]


@contextlib.contextmanager
def _interrupt_deferred() -> Iterator[None]:
    """Delay Ctrl-C until the end of the block.

    A KeyboardInterrupt inside the pool's code can leave the lock of a future held, so that the
    pool's thread waits for ever, or end a worker that has just been forked.
    """
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield  # Ctrl-C is ignored, or not raised in this thread
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
    # Ctrl-C reaches every process of the terminal; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    # Keep freed megabytes for the next image. Returned to the system, every page would be cleared
    # again, which takes a fifth of the time. Only glibc has these options.
    with contextlib.suppress(OSError, AttributeError):
        c_library = ctypes.CDLL(None)
        for option, value in ((-3, 64 << 20), (-1, 256 << 20)):  # M_MMAP_, M_TRIM_THRESHOLD
            c_library.mallopt(option, value)


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
