"""Download the NIH's archives and resize their images to a folder of small images, in one run.

A few archives are downloaded ahead of the archive being read. Images go from the archive through
memory to small files, so the 1024 px files are on the disk only on request. An archive is removed
as soon as its images are written. While the folder is incomplete, `prepared.json` lists the
finished archives with their numbers of images.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data_prep import manifest
from data_prep.download import (
    ArchiveSources,
    RemoteFile,
    download,
    iterate_members,
    md5_of,
    nih_sources,
)
from data_prep.errors import DataError
from data_prep.files import (
    exclusive_lock,
    is_nested,
    is_same_path,
    map_in_processes,
    remove_temporary_files,
    sync_filesystem,
    write_atomic,
)
from data_prep.manifest import Row
from data_prep.prepared_folder import (
    FORMATS,
    check_settings,
    decoders,
    disk_error_text,
    finish_target,
    mark_incomplete,
    open_target,
    rejected_images,
    target_file,
    text_without_path,
    write_resized,
)
from data_prep.readers.nih_labels import LABEL_FILES, label_files, parse_label_file

TOOL = "data_prep nih 1"

#: Folder for waiting archives; removed at the end.
STAGING_FOLDER = ".fetching"

#: Downloaded archives that may be on the disk besides the archive being read.
PREFETCHED_ARCHIVES = 2

#: Images resized, and images checked, in one batch.
BATCH, CHECK_BATCH = 4, 256

#: Bytes per pixel of a small file, generously; a synthetic image at 264 px takes 0.4.
BYTES_PER_PIXEL = {"png": 0.6, "jpeg": 0.3}


def prepare_nih(
    target: str | os.PathLike[str],
    *,
    sources: ArchiveSources | None = None,
    labels: str | os.PathLike[str] | None = None,
    size: int = 264,
    format: str = "png",
    quality: int = 90,
    keep_originals: str | os.PathLike[str] | None = None,
    num_workers: int | None = None,
    connections: int = 2,
    progress: bool = True,
) -> dict[str, Any]:
    """Download the NIH's chest X-rays and resize them to small grey squares.

    If interrupted, the same call continues at the byte or image it had reached. Each archive is
    removed when all of its images are on the disk. If images are missing from a complete folder,
    the call downloads only the archives that contain them.

    Args:
        target: a new or empty folder, or the target of an earlier call.
        sources: addresses and checksums from `nih_sources` (default: the NIH's).
        labels: a label file on this machine (default: download it).
        size: side length in pixels.
        format: `png` or `jpeg`.
        quality: of JPEG files, 1 to 95.
        keep_originals: a folder outside the target for the 1024 px images (default: keep none).
        num_workers: number of processes (default: one per CPU core).
        connections: number of archives to download at the same time.
        progress: show progress bars and the disk space needed.

    Returns:
        The contents of `prepared.json`, with `absent` (images that were in no archive), `written`
        and `skipped` (numbers of images), `rejected` (names and reasons) and `seconds`.

    Raises:
        DataError: an address is unreachable, a checksum is wrong, the disk is too small, an archive
            is damaged, or the target has other settings.
    """
    target, started = Path(target), time.monotonic()
    kept = None if keep_originals is None else Path(keep_originals)
    if kept is not None and (is_same_path(kept, target) or is_nested(kept, target)):
        raise DataError(
            f"{kept}: the originals would be inside the folder of small images {target};"
            " name a folder outside for --keep-originals"
        )
    sources = sources or nih_sources()
    settings = {
        "tool": TOOL,
        "source": [remote.name for remote in sources.archives],
        **check_settings(size, format, quality),
    }
    with exclusive_lock(target):
        before = open_target(target, settings)
        if before.complete and not before.rows:
            raise DataError(
                f"{target}: complete, but without manifest.csv, the list of its images: use the"
                " folder as it is, or remove it and run again, which downloads all archives"
            )
        staging = target / STAGING_FOLDER
        rows = _reusable_rows(target, before.rows, not before.complete, num_workers)  # by image
        if kept is not None:  # an image without its original is read again
            rows = {image: row for image, row in rows.items() if (kept / "images" / image).exists()}
        if before.complete and len(rows) == len(before.rows):
            shutil.rmtree(staging, ignore_errors=True)  # killed just before the end
            return _result(before.note, rows, 0, started)
        for place in (staging, target / "images"):
            place.mkdir(exist_ok=True)
            remove_temporary_files(place)
        label_file = _label_file(sources, labels, staging)
        known = _labelled_images(label_file, sources, fetched=label_file.parent == staging)
        state = {**settings, "labels": manifest.sha256_of(label_file.read_bytes())}
        have = Counter(row.source for row in rows.values())
        if before.complete:
            gave = Counter(row.source for row in before.rows.values())
            done = {one.name: have[one.name] for one in sources.archives}
        else:
            gave = Counter(before.note.get("archives", {}))
            done = {
                name: have[name] for name in gave if before.note.get("labels") == state["labels"]
            }
        done = {name: images for name, images in done.items() if gave[name] == images}
        mark_incomplete(target, {**state, "archives": done})
        todo = [remote for remote in sources.archives if remote.name not in done]
        _check_space(target, sources, todo, staging, len(known), settings, progress)
        written = 0
        bytes_bar = tqdm(
            total=sum(remote.bytes or 0 for remote in todo),
            desc="fetch",
            unit="B",
            unit_scale=True,
            disable=not (progress and todo and sources.folder is None) or None,
        )
        images_bar = tqdm(
            total=len(known), desc="resize", unit=" images", disable=not progress or None
        )
        arriving = closing(_arriving(sources, todo, staging, connections, bytes_bar))
        try:
            with bytes_bar, images_bar, arriving as coming, manifest.appending(target, rows) as add:
                for remote, archive in coming:
                    jobs = _jobs(remote.name, archive, {*known}, rows, kept, settings, images_bar)
                    work = partial(_resize_image, target=os.fspath(target), settings=settings)
                    for made in map_in_processes(work, jobs, BATCH, num_workers):
                        add(made)
                        written += sum(not row.problem for row in made)
                        images_bar.update(len(made))
                    for folder in filter(None, (target, kept)):
                        sync_filesystem(folder)
                    done[remote.name] = sum(row.source == remote.name for row in rows.values())
                    mark_incomplete(target, {**state, "archives": done})
                    if sources.folder is None:
                        archive.unlink()
        except OSError as error:
            raise DataError(disk_error_text(target, error, images_bar.n, len(known))) from None
        if not any(not row.problem for row in rows.values()):
            raise DataError(f"{target}: no image named in {label_file.name} was in the archives")
        rows = {name: rows[name] for name in known if name in rows}
        note = {**settings, "decoders": decoders(), "absent": len(known) - len(rows)}
        note = finish_target(target, note, [*rows.values()], partial(label_files, label_file))
        shutil.rmtree(staging)
    return _result(note, rows, written, started)


def _result(
    note: dict[str, Any], rows: dict[str, Row], written: int, started: float
) -> dict[str, Any]:
    rejected = rejected_images(rows.values())
    return {
        "absent": 0,
        **note,
        "written": written,
        "skipped": len(rows) - len(rejected) - written,
        "rejected": rejected,
        "seconds": time.monotonic() - started,
    }


def _reusable_rows(
    target: Path, rows: Mapping[str, Row], thorough: bool, num_workers: int | None
) -> dict[str, Row]:
    """Return the rows, by image, of reusable and of unreadable images."""
    work = partial(_reusable, target=target, thorough=thorough)
    found = map_in_processes(work, rows.values(), CHECK_BATCH, num_workers)
    return {row.image: row for some in found for row in some if row is not None}


def _reusable(row: Row, *, target: Path, thorough: bool) -> Row | None:
    good = bool(row.problem) or manifest.file_matches(target, row, thorough=thorough)
    return row if good else None


def _label_file(
    sources: ArchiveSources, labels: str | os.PathLike[str] | None, staging: Path
) -> Path:
    if labels is not None:
        if Path(labels).name not in LABEL_FILES:
            raise DataError(f"{labels}: rename the label file to {' or '.join(LABEL_FILES)}")
        return Path(labels)
    if sources.folder is not None:
        for name in (sources.label_file.name, *LABEL_FILES):
            if (sources.folder / name).is_file():
                return sources.folder / name
        raise DataError(f"{sources.folder}: no label file; put it there or name it with --labels")
    return download(sources.label_file, staging)


def _labelled_images(label_file: Path, sources: ArchiveSources, fetched: bool) -> list[str]:
    """Return the images of a label file; remove a downloaded file that is not a label file.

    The NIH publishes no checksum for the label file, and a network's login page may arrive instead.
    """
    try:
        return parse_label_file(label_file)["image"].tolist()
    except DataError as error:
        if not fetched:
            raise
        label_file.unlink()
        reason = text_without_path(error, str(label_file))
        raise DataError(
            f"{sources.label_file.url}: the server sent no label file ({reason}), and the file is"
            " removed: run the same command again, or name a label file with --labels"
        ) from None


def _check_space(
    target: Path,
    sources: ArchiveSources,
    todo: Sequence[RemoteFile],
    staging: Path,
    images: int,
    settings: dict[str, Any],
    progress: bool,
) -> None:
    """Raise `DataError` before the first byte if the disk has too little free space."""
    if not todo:
        return
    share = len(todo) / len(sources.archives)
    small = int(images * share * settings["size"] ** 2 * BYTES_PER_PIXEL[settings["format"]])
    large = sorted((remote.bytes or 0 for remote in todo), reverse=True)[: PREFETCHED_ARCHIVES + 1]
    there = sum(file.stat().st_size for file in staging.iterdir())
    need = small + (max(0, sum(large) - there) if sources.folder is None else 0)
    free = shutil.disk_usage(target).free
    if need > free:
        raise DataError(
            f"{target}: about {need / 1e9:.1f} GB are needed ({small / 1e9:.1f} GB of small images,"
            f" the rest for archives, removed as they are used), {free / 1e9:.1f} GB are free:"
            " free some space or name a folder on another disk"
        )
    if progress:
        words = f"needs about {need / 1e9:.1f} GB of disk, {free / 1e9:.1f} GB are free"
        print(f"{target}: {words}", file=sys.stderr)


def _arriving(
    sources: ArchiveSources,
    todo: Iterable[RemoteFile],
    staging: Path,
    connections: int,
    bar: tqdm[Any],
) -> Generator[tuple[RemoteFile, Path], None, None]:
    """Yield the archives in order, their checksums verified; threads download a few ahead."""
    if sources.folder is not None:
        for remote in todo:
            archive = sources.folder / remote.name
            if archive.exists() and md5_of(archive) != remote.md5:
                raise DataError(
                    f"{archive}: wrong checksum (expected MD5 {remote.md5}); fetch it again"
                )
            yield remote, archive
        return
    stop = threading.Event()
    waiting = iter(todo)
    with ThreadPoolExecutor(max(1, connections)) as pool:
        fetch: Callable[[RemoteFile], Path] = partial(
            download, folder=staging, on_progress=bar.update, stop=stop
        )
        coming = deque(
            (one, pool.submit(fetch, one)) for one in islice(waiting, PREFETCHED_ARCHIVES)
        )
        try:
            while coming:
                coming.extend((one, pool.submit(fetch, one)) for one in islice(waiting, 1))
                remote, arriving = coming.popleft()
                yield remote, arriving.result()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _jobs(
    name: str,
    archive: Path,
    known: set[str],
    rows: Mapping[str, Row],
    kept: Path | None,
    settings: Mapping[str, Any],
    bar: tqdm[Any],
) -> Iterator[tuple[Row, bytes, str | None]]:
    """Yield row, bytes and path of the original of each image in an archive to write."""
    ending = FORMATS[settings["format"]]
    known -= {image for image, row in rows.items() if row.source != name}
    if kept is not None:
        (kept / "images").mkdir(parents=True, exist_ok=True)
    for image, data in iterate_members(archive, known.__contains__):
        original = None if kept is None else str(kept / "images" / image)
        same = image in rows and rows[image].source_sha256 == manifest.sha256_of(data)
        if same and original is None:
            bar.update(1)
        else:
            yield Row(image, target_file(image, ending), source=name), data, original


def _resize_image(
    job: tuple[Row, bytes, str | None], *, target: str, settings: dict[str, Any]
) -> Row:
    row, data, original = job
    if original is not None:
        write_atomic(original, data)
    return write_resized(data, row, target, settings)[0]
