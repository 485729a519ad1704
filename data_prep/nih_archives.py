"""List the NIH's archives with addresses and checksums, and download them one after the other."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data_prep.download import Cancelled, RemoteFile, download
from data_prep.errors import DataError
from data_prep.files import read_json

#: Downloaded archives that may be on the disk besides the archive being read.
PREFETCHED_ARCHIVES = 2


@dataclass
class ArchiveSources:
    """The files to download; `folder` is set if the archives are on this machine."""

    label_file: RemoteFile
    archives: list[RemoteFile]
    folder: Path | None = None


def nih_sources(
    *,
    listing: str | os.PathLike[str] | None = None,
    mirror: str | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> ArchiveSources:
    """Return where to get the NIH's archives and label file.

    Args:
        listing: a list in the format of `sources.json`; None: `sources.json`, the NIH's list.
        mirror: the address of a folder that has the files under the list's names.
        folder: a local folder that has the archives.

    Returns:
        The label file and the archives, with addresses, sizes and checksums.

    Raises:
        DataError: the list is missing or malformed.
    """
    if listing is None:
        content = json.loads(resources.files("data_prep").joinpath("sources.json").read_text())
    else:
        content = read_json(listing)
        if content is None:
            raise DataError(f"{listing}: the list of sources is missing; check the path")
    try:
        label_file = _remote_file(content["label_file"])
        archives = [_remote_file(archive) for archive in content["archives"]]
        if not archives:
            raise ValueError("there must be an archive")
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{listing}: not a list of sources ({error}); use the format of sources.json"
        ) from None
    if mirror is not None:
        base = mirror.rstrip("/")
        label_file = replace(label_file, url=f"{base}/{label_file.name}")
        archives = [replace(remote, url=f"{base}/{remote.name}") for remote in archives]
    return ArchiveSources(label_file, archives, None if folder is None else Path(folder))


def _remote_file(entry: dict[str, Any]) -> RemoteFile:
    """Convert an entry of a list to `RemoteFile`; TypeError or ValueError if it is invalid."""
    remote = RemoteFile(**entry)
    for field, kinds in (
        ("name", (str,)),
        ("url", (str,)),
        ("bytes", (int, type(None))),
        ("md5", (str, type(None))),
    ):
        if not isinstance(getattr(remote, field), kinds):
            raise ValueError(f"{field} is {getattr(remote, field)!r}")
    name = remote.name
    if Path(name).name != name or name.startswith(".") or not name.isprintable():
        raise ValueError(f"{name!r} is not a bare file name")
    return remote


def iterate_archives(
    sources: ArchiveSources,
    todo: Sequence[RemoteFile],
    staging: Path,
    connections: int,
    bar: tqdm[Any],
    stop: threading.Event,
) -> Generator[tuple[RemoteFile, Path], None, None]:
    """Yield archives as they arrive; threads download a few archives ahead."""
    if sources.folder is not None:
        for remote in todo:
            yield remote, sources.folder / remote.name
        return
    waiting: queue.SimpleQueue[RemoteFile] = queue.SimpleQueue()
    ready: queue.SimpleQueue[tuple[RemoteFile, Path] | BaseException] = queue.SimpleQueue()
    for remote in todo:
        waiting.put(remote)
    under_way = _Counter()

    def fetch() -> None:
        try:
            while not stop.is_set():
                _wait_for_space(under_way.get, PREFETCHED_ARCHIVES + 1, stop)
                try:
                    remote = waiting.get_nowait()
                except queue.Empty:
                    return
                under_way.add(1)
                ready.put((remote, download(remote, staging, on_progress=bar.update, stop=stop)))
        except Cancelled:
            pass
        except BaseException as error:
            ready.put(error)

    threads = [threading.Thread(target=fetch, daemon=True) for _ in range(max(1, connections))]
    for thread in threads:
        thread.start()
    try:
        for _ in todo:
            arrived = ready.get()
            if isinstance(arrived, BaseException):
                raise arrived
            yield arrived
            under_way.add(-1)
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=2)  # a thread that waits for a silent server ends with the process


class _Counter:
    """A counter that several threads change."""

    def __init__(self) -> None:
        self.value, self.lock = 0, threading.Lock()

    def add(self, step: int) -> None:
        with self.lock:
            self.value += step

    def get(self) -> int:
        return self.value


def _wait_for_space(have: Callable[[], int], most: int, stop: threading.Event) -> None:
    """Wait while `most` downloaded files are on the disk; each is removed after use."""
    while have() >= most:
        if stop.is_set():
            raise Cancelled
        time.sleep(0.1)
