"""List the NIH's archives, download them one after the other, and know those that are finished."""

from __future__ import annotations

import json
import os
import queue
import re
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import msgspec
from tqdm import tqdm

from data_prep import manifest
from data_prep.download import Cancelled, RemoteFile, download
from data_prep.errors import DataError
from data_prep.files import map_in_processes, read_json, sync_filesystem, write_json
from data_prep.manifest import Row
from data_prep.prepared_folder import PreviousState, target_file

#: Downloaded archives that may be on the disk besides the archive being read.
PREFETCHED_ARCHIVES = 2

BARE_NAME = re.compile(r"[^./][^/]*")

#: Images checked in one batch.
CHECK_BATCH = 256


@dataclass
class ArchiveSources:
    """The files to download; `folder` is set if the archives are on this machine."""

    label_file: RemoteFile
    archives: list[RemoteFile]
    folder: Path | None = None


class _Listing(msgspec.Struct):
    label_file: RemoteFile
    archives: Annotated[list[RemoteFile], msgspec.Meta(min_length=1)]


def nih_sources(
    *,
    listing: str | os.PathLike[str] | None = None,
    mirror: str | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> ArchiveSources:
    """Return the addresses, sizes and checksums of the NIH's files, for `prepare_nih`.

    Args:
        listing: a file in the format of `data_prep/sources.json` (default: the NIH's addresses).
        mirror: the address of a server folder that has files of the same names.
        folder: a local folder that contains the archives.

    Returns:
        The sources of the label file and of the archives.

    Raises:
        DataError: the listing is missing or invalid, or the folder has zip archives only.
    """
    if listing is None:
        content = json.loads(resources.files("data_prep").joinpath("sources.json").read_text())
    else:
        content = read_json(listing)
        if content is None:
            raise DataError(f"{listing}: the list of sources is missing; check the path")
    try:
        found = msgspec.convert(content, _Listing)
        for remote in (found.label_file, *found.archives):
            if not BARE_NAME.fullmatch(remote.name) or not remote.name.isprintable():
                raise ValueError(f"{remote.name!r} is not a bare file name")
    except ValueError as error:  # also msgspec's
        raise DataError(
            f"{listing}: not a list of sources ({error}); use the format of sources.json"
        ) from None
    label_file, archives = found.label_file, found.archives
    if mirror is not None:
        base = mirror.rstrip("/")
        label_file = replace(label_file, url=f"{base}/{label_file.name}")
        archives = [replace(remote, url=f"{base}/{remote.name}") for remote in archives]
    if folder is None:
        return ArchiveSources(label_file, archives)
    folder = Path(folder)
    here = any((folder / remote.name).is_file() for remote in archives)
    if not here and (zips := sorted(folder.glob("*.zip"))):
        raise DataError(
            f"{zips[0]}: a zip archive, as Kaggle has, instead of the NIH's {archives[0].name};"
            " unzip it, then run 'data-prep resize FOLDER TARGET'"
        )
    return ArchiveSources(label_file, archives, folder)


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
    places = threading.Semaphore(PREFETCHED_ARCHIVES + 1)  # on the disk; each is removed after use

    def fetch() -> None:
        try:
            while not stop.is_set():
                if places.acquire(timeout=0.1):
                    remote = waiting.get_nowait()
                    path = download(remote, staging, on_progress=bar.update, stop=stop)
                    ready.put((remote, path))
        except (Cancelled, queue.Empty):
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
            places.release()
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=2)  # a thread that waits for a silent server ends with the process


def reusable_rows(
    target: Path, before: PreviousState, ending: str, num_workers: int | None
) -> dict[str, Row]:
    """Return the rows, by image, of reusable and of unreadable images.

    In an incomplete folder every byte is checked, because a power cut may have lost some.
    """
    rows = [
        row
        for row in before.rows.values()
        if row.problem or row.file == target_file(row.image, ending)
    ]
    work = partial(_is_reusable, target=target, thorough=not before.complete)
    found = map_in_processes(work, rows, CHECK_BATCH, num_workers)
    return {row.image: row for some in found for row, good in some if good}


def _is_reusable(row: Row, *, target: Path, thorough: bool) -> tuple[Row, bool]:
    good = bool(row.problem) or manifest.file_matches(target, row, thorough=thorough)
    return row, good


def finished_archives(
    sources: ArchiveSources,
    before: PreviousState,
    rows: dict[str, Row],
    staging: Path,
    labels_sha256: str,
) -> set[str]:
    """Return the archives that need not be read again: all of their images are reusable.

    `labels_sha256` is the digest of the label file, which selects the images; `rows` are the
    reusable rows.
    """
    have = Counter(row.source for row in rows.values())
    gave = Counter(row.source for row in before.rows.values())
    done = set()
    for remote in sources.archives:
        mark = _mark_file(staging, remote.name)
        wanted = {"images": have[remote.name], "labels": labels_sha256}
        if before.complete and gave[remote.name] == have[remote.name]:
            write_json(mark, wanted)
        if read_json(mark) == wanted:
            done.add(remote.name)
        else:
            mark.unlink(missing_ok=True)
    return done


def mark_archive_finished(
    name: str,
    rows: dict[str, Row],
    staging: Path,
    labels_sha256: str,
    folders: Iterable[Path | None],
) -> None:
    """Record that an archive is no longer needed, once all of its images are on the disk."""
    for folder in folders:
        if folder is not None:
            sync_filesystem(folder)
    images = sum(row.source == name for row in rows.values())
    write_json(_mark_file(staging, name), {"images": images, "labels": labels_sha256})


def _mark_file(staging: Path, name: str) -> Path:
    return staging / f"{name}.done"
