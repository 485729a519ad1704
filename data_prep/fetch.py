"""The whole way from the NIH's archives to a folder of small images, in one go.

Archives are fetched a few ahead of the one being read; images go from the archive through memory
to small files, so that the 1024 px files never lie on the disk unless asked for; an archive is
removed as soon as its images are done. What is needed of the disk is said beforehand.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data_prep.archive import images_in
from data_prep.catalog import LABEL_FILES, parse_label_file
from data_prep.download import Remote, discard, download, md5_of
from data_prep.errors import DataError
from data_prep.files import on_all_cores, read_json, sole_writer, sweep, write_json, write_whole
from data_prep.images import decode_grey
from data_prep.prepared import (
    FORMATS,
    Reject,
    begin,
    check_settings,
    encode,
    finish,
    full_disk,
    reason_only,
    target_path,
)
from data_prep.sources import AHEAD, Sources, arrivals, nih_sources

TOOL = "data_prep nih 1"

#: Where archives wait and marks of finished ones stand; gone when all is done.
WORKSHOP = ".fetching"

BATCH = 4

#: Bytes of a small file a pixel, generously; a demo image at 264 px takes 0.4.
BYTES_PER_PIXEL = {"png": 0.6, "jpeg": 0.3}


def prepare_nih(
    target: str | os.PathLike[str],
    *,
    sources: Sources | None = None,
    labels: str | os.PathLike[str] | None = None,
    size: int = 264,
    format: str = "png",
    quality: int = 90,
    originals: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    connections: int = 2,
    progress: bool = True,
) -> dict[str, Any]:
    """Fetch (or take from a folder) the archives and the label file, and fill a target folder.

    The target is laid out as `resize_folder`'s: `images/`, label file, `prepared.json` and, where
    an image could not be read, `rejected.csv`; the label file is cut to the images there are.
    `labels` names a label file on this machine. With `originals` the 1024 px files are kept there.
    Interrupted anywhere, the same call goes on, at the byte or the image it had reached.

    Returns what prepared.json holds, and `written`, `skipped`, `rejected`, `absent` (images of the
    label file that were in no archive) and `seconds`. Raises `DataError` for everything a user can
    put right: out of reach, wrong checksums, a full disk or one too small, hostile archives.
    """
    target, started = Path(target), time.monotonic()
    sources = sources or nih_sources()
    settings = {
        "tool": TOOL,
        "source": [remote.name for remote in sources.archives],
        **check_settings(size, format, quality),
    }
    with sole_writer(target):
        begin(target, settings)
        note = read_json(target / "prepared.json") or {}
        if note.get("complete"):
            shutil.rmtree(target / WORKSHOP, ignore_errors=True)  # killed just before the end
            images = note["images"]
            return {**note, "written": 0, "skipped": images, "rejected": [], "absent": 0,
                    "seconds": time.monotonic() - started}  # fmt: skip
        workshop = target / WORKSHOP
        workshop.mkdir(exist_ok=True)
        (target / "images").mkdir(exist_ok=True)
        for place in (workshop, target / "images"):
            sweep(place)
        label_file = _label_file(sources, labels, workshop)
        known = set(parse_label_file(label_file)["image"])
        marks = {remote.name: read_json(workshop / f"{remote.name}.done") or {}
                 for remote in sources.archives}  # fmt: skip
        todo = [remote for remote in sources.archives if not marks[remote.name]]
        _check_space(target, sources, todo, workshop, len(known), settings, progress)
        run = _Run(target, settings, known, None if originals is None else Path(originals))
        stop = threading.Event()
        with _bars(todo, sources, len(known), progress) as (bytes_bar, images_bar):
            coming = arrivals(sources, todo, workshop, connections, bytes_bar, stop)
            try:
                for remote, archive in coming:
                    _trust(remote, archive, sources)
                    marks[remote.name] = _read_archive(archive, run, workers, images_bar)
                    write_json(workshop / f"{remote.name}.done", marks[remote.name])
                    if sources.folder is None:
                        discard(workshop, remote.name)
            except OSError as error:
                raise DataError(full_disk(target, error, images_bar.n, len(known))) from None
            finally:
                stop.set()
                coming.close()
        present = {name for mark in marks.values() for name in mark["images"]}
        rejected = sorted(
            {(name, why) for mark in marks.values() for name, why in mark["rejected"]}
        )
        settings["images"] = len(present) + len(rejected)
        if not present:
            raise DataError(f"{target}: no image named in {label_file.name} was in the archives")
        finish(target, settings, rejected, label_file, present)
        shutil.rmtree(workshop)
    return {**settings, "complete": True, "written": run.written, "skipped": run.skipped,
            "rejected": rejected, "absent": len(known) - len(present) - len(rejected),
            "seconds": time.monotonic() - started}  # fmt: skip


@dataclass
class _Run:
    target: Path
    settings: dict[str, Any]
    known: set[str]
    originals: Path | None
    written: int = 0
    skipped: int = 0


def _label_file(sources: Sources, labels: str | os.PathLike[str] | None, workshop: Path) -> Path:
    if labels is not None:
        if Path(labels).name not in LABEL_FILES:
            raise DataError(f"{labels}: call the label file {' or '.join(LABEL_FILES)}")
        return Path(labels)
    if sources.folder is not None:
        for name in (sources.label_file.name, *LABEL_FILES):
            if (sources.folder / name).is_file():
                return sources.folder / name
        raise DataError(f"{sources.folder}: no label file; put it there or name it with --labels")
    return download(sources.label_file, workshop)


def _check_space(
    target: Path,
    sources: Sources,
    todo: Sequence[Remote],
    workshop: Path,
    images: int,
    settings: dict[str, Any],
    progress: bool,
) -> None:
    """Refuse before the first byte where the disk cannot hold what is to come."""
    if not todo:
        return
    share = len(todo) / len(sources.archives)
    small = int(images * share * settings["size"] ** 2 * BYTES_PER_PIXEL[settings["format"]])
    large = sorted((remote.bytes or 0 for remote in todo), reverse=True)[: AHEAD + 1]
    there = sum(file.stat().st_size for file in workshop.iterdir())
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


def _trust(remote: Remote, archive: Path, sources: Sources) -> None:
    """Before the first image is written: the checksum, or where none is known, all members.

    A fetched archive with a checksum has had it looked at; one found bad is removed, so that the
    next run fetches it anew.
    """
    try:
        if remote.md5 is None:
            for _ in images_in(archive):
                pass
        elif sources.folder is not None and archive.exists() and md5_of(archive) != remote.md5:
            raise DataError(
                f"{archive}: wrong checksum (expected MD5 {remote.md5}); fetch it again"
            )
    except DataError:
        if sources.folder is None:
            archive.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def _bars(
    todo: Sequence[Remote], sources: Sources, images: int, progress: bool
) -> Iterator[tuple[tqdm[Any], tqdm[Any]]]:
    """Bytes fetched and images made, on stderr; the first only where something is fetched."""
    total = sum(remote.bytes or 0 for remote in todo) or None
    fetches = progress and bool(todo) and sources.folder is None
    with (
        tqdm(total=total, desc="fetch", unit="B", unit_scale=True, disable=not fetches) as first,
        tqdm(total=images, desc="resize", unit=" images", disable=not progress) as second,
    ):
        yield first, second


def _read_archive(archive: Path, run: _Run, workers: int | None, bar: tqdm[Any]) -> dict[str, Any]:
    """Resize what an archive holds; the mark that says what came of each image."""
    done = set(os.listdir(run.target / "images"))  # noqa: PTH208
    ending = FORMATS[run.settings["format"]]
    names: list[str] = []

    def batches() -> Iterator[list[tuple[str, str, bytes, str | None]]]:
        batch: list[tuple[str, str, bytes, str | None]] = []
        for name, data in images_in(archive):
            if name not in run.known:
                continue
            names.append(name)
            to = target_path(run.target, name, ending)
            original = None if run.originals is None else str(run.originals / "images" / name)
            if os.path.basename(to) in done and original is None:  # noqa: PTH119
                run.skipped += 1
                bar.update(1)
                continue
            batch.append((name, to, data, original))
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    if run.originals is not None:
        (run.originals / "images").mkdir(parents=True, exist_ok=True)
    rejected: list[Reject] = []
    for count, rejects in on_all_cores(partial(_shrink, settings=run.settings), batches(), workers):
        rejected += rejects
        run.written += count - len(rejects)
        bar.update(count)
    bad = {name for name, _ in rejected}
    return {"images": sorted(set(names) - bad), "rejected": sorted(rejected)}


def _shrink(
    batch: Sequence[tuple[str, str, bytes, str | None]], *, settings: dict[str, Any]
) -> tuple[int, list[Reject]]:
    rejected: list[Reject] = []
    for name, to, data, original in batch:
        if original is not None:
            write_whole(original, data)
        try:
            small = encode(decode_grey(data, name), settings)
        except DataError as error:
            rejected.append((name, reason_only(error, name)))
        else:
            write_whole(to, small)
    return len(batch), rejected
