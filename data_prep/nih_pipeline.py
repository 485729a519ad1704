"""Download the NIH's archives and resize their images to a folder of small images, in one run.

A few archives are downloaded ahead of the archive being read, which is removed as soon as its
images are written. `prepared.json` lists the finished archives with their numbers of images.
"""

from __future__ import annotations

import os
import shutil
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

from data_prep import files, manifest
from data_prep import prepared_folder as prepared
from data_prep.download import (
    ArchiveSources,
    RemoteFile,
    download,
    iterate_members,
    md5_of,
    nih_sources,
)
from data_prep.errors import DataError
from data_prep.manifest import Row
from data_prep.prepared_folder import Note
from data_prep.readers.nih import LABEL_FILES, label_files, parse_label_file

TOOL = "data_prep nih 1"

#: Folder for waiting archives; removed at the end.
STAGING_FOLDER = ".fetching"

#: Downloaded archives that may be on the disk besides the archive being read.
PREFETCHED_ARCHIVES = 2

#: An image's row, its bytes, and the path of its original.
Job = tuple[Row, bytes, str | None]

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

    If interrupted, the same call continues at the byte or image it had reached. If images are
    missing from a complete folder, it downloads only the archives that contain them. The large
    images are kept in `keep_originals`. Returns the contents of `prepared.json`, with `absent`
    (images that were in no archive), `written`, `skipped`, `rejected` and `seconds`.
    """
    target, started = Path(target), time.monotonic()
    kept = None if keep_originals is None else Path(keep_originals)
    if kept is not None and (files.is_same_path(kept, target) or files.is_nested(kept, target)):
        fix = "name a folder outside for --keep-originals"
        raise DataError(f"{kept}: the originals would be inside {target} or around it; {fix}")
    sources = sources or nih_sources()
    settings = {
        "tool": TOOL,
        "source": [remote.name for remote in sources.archives],
        **prepared.check_settings(size=size, format=format, quality=quality),
    }
    with files.exclusive_lock(target):
        before, old_note = prepared.open_target(target, settings)
        if old_note["complete"] and not before:
            fix = "use the folder as it is, or remove it and run again"
            raise DataError(f"{target}: complete, but without manifest.csv; {fix}")
        staging = target / STAGING_FOLDER
        check = partial(_reusable, target=target, thorough=not old_note["complete"])
        good = files.map_in_processes(check, before.values(), CHECK_BATCH, num_workers)
        rows = {row.image: row for some in good for row in some if row is not None}
        if kept is not None:  # an image without its original is read again
            rows = {image: row for image, row in rows.items() if (kept / "images" / image).exists()}
        if old_note["complete"] and len(rows) == len(before):
            shutil.rmtree(staging, ignore_errors=True)  # killed just before the end
            return _result(old_note, rows, 0, started)
        for place in (staging, target / "images"):
            place.mkdir(exist_ok=True)
            files.remove_temporary_files(place)
        label_file, known = _read_labels(sources, labels, staging)
        state = {**settings, "labels": manifest.sha256_of(label_file.read_bytes())}
        done: dict[str, int] = {}
        if old_note.get("labels") == state["labels"]:
            have = Counter(row.source for row in rows.values())
            gave = old_note.get("archives", {})
            done = {name: images for name, images in gave.items() if have[name] == images}
        prepared.write_note(target, {**state, "archives": done})
        todo = [remote for remote in sources.archives if remote.name not in done]
        if todo:
            _check_space(target, sources, todo, len(known), settings)
        written = 0
        hide = not progress or None  # None: where there is no terminal
        total = 0 if sources.folder else sum(remote.bytes or 0 for remote in todo)
        bytes_bar = tqdm(total=total, desc="fetch", unit="B", unit_scale=True, disable=hide)
        images_bar = tqdm(total=len(known), desc="resize", unit=" images", disable=hide)
        arriving = closing(_arriving(sources, todo, staging, connections, bytes_bar))
        try:
            with bytes_bar, images_bar, arriving as coming, manifest.appending(target, rows) as add:
                for remote, archive in coming:
                    jobs = _jobs(remote.name, archive, {*known}, rows, kept, settings, images_bar)
                    work = partial(_resize_image, target=os.fspath(target), settings=settings)
                    for made in files.map_in_processes(work, jobs, BATCH, num_workers):
                        add(made)
                        written += sum(not row.problem for row in made)
                        images_bar.update(len(made))
                    for folder in filter(None, (target, kept)):
                        files.sync_filesystem(folder)
                    done[remote.name] = sum(row.source == remote.name for row in rows.values())
                    prepared.write_note(target, {**state, "archives": done})
                    if sources.folder is None:
                        archive.unlink()
        except OSError as error:
            done_text = prepared.disk_error_text(target, error, images_bar.n, len(known))
            raise DataError(done_text) from None
        if all(row.problem for row in rows.values()):
            raise DataError(f"{target}: no image named in {label_file.name} was in the archives")
        rows = {name: rows[name] for name in known if name in rows}
        note = {
            **state,
            "archives": {one.name: done[one.name] for one in sources.archives},
            "decoders": prepared.decoders(),
            "absent": len(known) - len(rows),
        }
        result = [*rows.values()]
        note = prepared.finish_target(target, note, result, partial(label_files, label_file))
        shutil.rmtree(staging)
    return _result(note, rows, written, started)


def _result(note: Note, rows: dict[str, Row], written: int, started: float) -> Note:
    rejected = prepared.rejected_images(rows.values())
    return {
        **note,
        "written": written,
        "skipped": len(rows) - len(rejected) - written,
        "rejected": rejected,
        "seconds": time.monotonic() - started,
    }


def _reusable(row: Row, *, target: Path, thorough: bool) -> Row | None:
    """Return the row if its image is as it was written, or was unreadable."""
    good = bool(row.problem) or manifest.file_matches(target, row, thorough=thorough)
    return row if good else None


def _read_labels(
    sources: ArchiveSources, labels: str | os.PathLike[str] | None, staging: Path
) -> tuple[Path, list[str]]:
    """Return the label file and its images; a downloaded login page, say, is removed."""
    if labels is not None and Path(labels).name not in LABEL_FILES:
        raise DataError(f"{labels}: rename the label file to {' or '.join(LABEL_FILES)}")
    if labels is None and sources.folder is not None:
        names = (sources.label_file.name, *LABEL_FILES)
        there = (sources.folder / name for name in names if (sources.folder / name).is_file())
        if (labels := next(there, None)) is None:
            raise DataError(f"{sources.folder}: no label file; name one with --labels")
    if labels is not None:
        return Path(labels), parse_label_file(labels).images
    file = download(sources.label_file, staging)
    try:
        return file, parse_label_file(file).images
    except DataError as error:
        file.unlink()
        reason = prepared.text_without_path(error, str(file))
        what = f"the server sent no label file ({reason}), and the file is removed"
        raise DataError(
            f"{sources.label_file.url}: {what}: run again, or name a label file with --labels"
        ) from None


def _check_space(
    target: Path, sources: ArchiveSources, todo: Sequence[RemoteFile], images: int, settings: Note
) -> None:
    """Raise `DataError` before the first byte if the disk has too little free space."""
    share = len(todo) / len(sources.archives)
    small = int(images * share * settings["size"] ** 2 * BYTES_PER_PIXEL[settings["format"]])
    large = sorted((remote.bytes or 0 for remote in todo), reverse=True)[: PREFETCHED_ARCHIVES + 1]
    there = sum(file.stat().st_size for file in (target / STAGING_FOLDER).iterdir())
    need = small + (max(0, sum(large) - there) if sources.folder is None else 0)
    free = shutil.disk_usage(target).free
    if need > free:
        needs = f"about {need / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free"
        raise DataError(f"{target}: {needs}; free some space or name a folder elsewhere")


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
                raise DataError(f"{archive}: wrong checksum (not {remote.md5}); fetch it again")
            yield remote, archive
        return
    stop = threading.Event()
    waiting = iter(todo)
    with ThreadPoolExecutor(max(1, connections)) as pool:
        fetch: Callable[[RemoteFile], Path] = partial(
            download, folder=staging, on_progress=bar.update, stop=stop
        )
        ahead = islice(waiting, PREFETCHED_ARCHIVES)
        coming = deque((one, pool.submit(fetch, one)) for one in ahead)
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
) -> Iterator[Job]:
    """Yield each image in an archive to write."""
    ending = prepared.FORMATS[settings["format"]]
    known -= {image for image, row in rows.items() if row.source != name}
    if kept is not None:
        (kept / "images").mkdir(parents=True, exist_ok=True)
    for image, data in iterate_members(archive, known.__contains__):
        original = None if kept is None else str(kept / "images" / image)
        same = image in rows and rows[image].source_sha256 == manifest.sha256_of(data)
        if same and original is None:
            bar.update(1)
        else:
            yield Row(image, prepared.target_file(image, ending), source=name), data, original


def _resize_image(job: Job, *, target: str, settings: Note) -> Row:
    row, data, original = job
    if original is not None:
        files.write_atomic(original, data)
    return prepared.write_resized(data, row, target, settings)[0]
