"""Resize all images of a folder to small squares once, before training."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm

from data_prep import manifest
from data_prep.errors import DataError, count_text
from data_prep.files import exclusive_lock, in_batches, map_in_processes, remove_temporary_files
from data_prep.folder_state import read_prepared
from data_prep.manifest import Row
from data_prep.prepared_folder import (
    TOOL,
    check_settings,
    decoders,
    disk_error_text,
    finish_target,
    mark_incomplete,
    open_target,
    reject_image,
    rejected_images,
    text_without_path,
    write_resized,
)
from data_prep.readers import catalog_reader as sources
from data_prep.readers import labels_csv
from data_prep.readers.nih import TEST_FILE, TRAIN_VALID_FILE
from data_prep.resize_plan import ResizePlan, plan_resize

BATCH = 16
#: Images checked in one batch; a check takes much less time than resizing.
CHECK_BATCH = 256

#: Files to copy to the target; demo.json marks the images as synthetic.
COPIED_FILES = ("demo.json", TRAIN_VALID_FILE, TEST_FILE)


def resize_folder(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    size: int = 264,
    format: str = "png",
    quality: int = 90,
    num_workers: int | None = None,
    skip_missing: bool = False,
    strict: bool = False,
    progress: bool = True,
    reader: str | None = None,
    channels: int = 1,
    resize_mode: str = "stretch",
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Resize every image of a folder to a square.

    If interrupted, the same call continues. It also adds new and changed images of the source, and
    rewrites missing or damaged images. `prepared.json` marks a complete folder, and `manifest.csv`
    has the SHA-256 of every image and of its source.

    Args:
        source: a data folder, a folder of images, or what `reader` reads; it is never changed.
        target: a new or empty folder, or the target of an earlier call.
        size: side length in pixels.
        format: `png` or `jpeg`.
        quality: of JPEG files, 1 to 95.
        num_workers: number of processes (default: one per CPU core).
        skip_missing: skip images that the label file names but the folder lacks.
        strict: raise an error for an unreadable image, instead of listing it in `rejected.csv`.
        progress: show a progress bar.
        reader: the format of the source (default: `nih`, or that of a prepared folder).
        channels: 1 for grey images, 3 for RGB.
        resize_mode: `stretch`, or `center-crop` for the square in the middle.
        options: options of the reader, as in `open_reader`.

    Returns:
        The contents of `prepared.json`, with `written` and `skipped` (numbers of images),
        `rejected` (names and reasons), `passed_over` (numbers of other files by ending) and
        `seconds`.

    Raises:
        DataError: an argument is invalid, an image is missing, the disk is full, the target has
            other settings, or the source lacks images that the target has.
    """
    source, target = Path(source), Path(target)
    started = time.monotonic()
    settings = {"tool": TOOL, **check_settings(size, format, quality, channels, resize_mode)}
    made_of = reader
    if labels_csv.has_labels_csv(source):  # copy the labels and the reader's name
        reader = reader or "table"
        made_of = (read_prepared(source) or {}).get("reader", reader)
    if made_of not in (None, "nih"):
        settings["reader"] = made_of
    plan = plan_resize(source, target, skip_missing, format, reader, options)
    with exclusive_lock(target):
        before = open_target(target, settings)
        _refuse_lost_images(source, target, before.rows, plan)
        for folder in sorted({os.path.dirname(row.file) for row in plan.rows}):  # noqa: PTH120
            (target / folder).mkdir(parents=True, exist_ok=True)
            remove_temporary_files(target / folder)
        rows = _reusable_rows(plan, target, before.rows, not before.complete, num_workers)
        todo = [row for row in plan.rows if row.image not in rows]
        if todo:
            mark_incomplete(target, settings)
            work = partial(
                _resize_batch,
                source=plan.folder,
                kind=plan.kind,
                target=target,
                settings=settings,
                strict=strict,
            )
            bar = partial(tqdm, desc=f"resize to {size} px", unit=" images", disable=not progress)
            _resize_all(work, todo, rows, target, num_workers, bar)
        note = {**settings, "source": os.path.realpath(source), "decoders": decoders()}
        if not todo and before.complete:
            note["decoders"] = before.note.get("decoders", note["decoders"])
        result = [rows[row.image] for row in plan.rows]
        finish_target(
            target, note, result, plan.label_files, [plan.folder / name for name in COPIED_FILES]
        )
    rejected = rejected_images(result)
    return {
        **note,
        "images": len(result),
        "complete": True,
        "written": sum(not rows[row.image].problem for row in todo),
        "skipped": len(result) - len(todo),
        "rejected": rejected,
        "passed_over": dict(plan.passed_over),
        "seconds": time.monotonic() - started,
    }


def _refuse_lost_images(
    source: Path, target: Path, before: dict[str, Row], plan: ResizePlan
) -> None:
    lost = before.keys() - {row.image for row in plan.rows}
    lost = {image for image in lost if not before[image].problem}
    if lost:
        raise DataError(
            f"{target} has {count_text(lost, 'image', 'images')} that {source} lacks, the first:"
            f" {min(lost)}; name another folder, or remove this folder"
        )


def _reusable_rows(
    plan: ResizePlan,
    target: Path,
    before: dict[str, Row],
    thorough: bool,
    num_workers: int | None,
) -> dict[str, Row]:
    """Return the rows, by image, of written images that can be reused."""
    known = [(row, before[row.image]) for row in plan.rows if row.image in before]
    work = partial(
        _check_batch, source=plan.folder, kind=plan.kind, target=target, thorough=thorough
    )
    good = map_in_processes(work, in_batches(known, CHECK_BATCH), num_workers)
    return {row.image: row for rows in good for row in rows}


def _check_batch(
    rows: Sequence[tuple[Row, Row]], *, source: Path, kind: str, target: Path, thorough: bool
) -> list[Row]:
    good = []
    for planned, row in rows:
        if row.problem or row.file != planned.file:
            continue
        if not manifest.file_matches(target, row, thorough=thorough):
            continue
        try:
            state = sources.source_state(source, kind, planned.source)
            same = state == row.source_state or (
                manifest.sha256_of(sources.read_source(source, kind, planned.source))
                == row.source_sha256
            )
        except (OSError, DataError):  # the error is raised when the image is resized again
            continue
        if same:
            good.append(row._replace(source=planned.source, source_state=state))
    return good


def _resize_all(
    work: Callable[[Sequence[Row]], list[Row]],
    todo: list[Row],
    rows: dict[str, Row],
    target: Path,
    num_workers: int | None,
    bar: Callable[..., tqdm[NoReturn]],
) -> None:
    total = len(rows) + len(todo)
    try:
        with (
            bar(total=total, initial=len(rows)) as shown,
            manifest.appending(target, rows) as add,
        ):
            for made in map_in_processes(work, in_batches(todo, BATCH), num_workers):
                add(made)
                shown.update(len(made))
    except OSError as error:
        done = sum(not row.problem for row in rows.values())
        raise DataError(disk_error_text(target, error, done, total)) from None


def _resize_batch(
    rows: Sequence[Row],
    *,
    source: Path,
    kind: str,
    target: Path,
    settings: dict[str, Any],
    strict: bool,
) -> list[Row]:
    made = []
    for row in rows:
        path = os.path.join(source, row.source)  # noqa: PTH118 (speed)
        try:
            data, state = _read(source, kind, row.source)
        except DataError as error:
            row = reject_image(row, text_without_path(error, path), os.fspath(target))
        else:
            row = write_resized(
                data, row._replace(source_state=state), os.fspath(target), settings, kind
            )
        if strict and row.problem:
            raise DataError(f"{path}: {row.problem}")
        made.append(row)
    return made


def _read(source: Path, kind: str, place: str) -> tuple[bytes, str]:
    """Return a source's bytes and the state of its file before reading."""
    try:
        state = sources.source_state(source, kind, place)
    except OSError:  # the next line raises the error
        state = ""
    return sources.read_source(source, kind, place), state
