"""Resize all images of a folder to small squares once, before training."""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data_prep import manifest
from data_prep.errors import DataError, count_text
from data_prep.files import exclusive_lock, map_in_processes, remove_temporary_files
from data_prep.folder_state import read_prepared
from data_prep.image_decoding import note_texts
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
        `rejected` (names and reasons), `notes` (what the written images lost), `passed_over`
        (numbers of other files by ending) and `seconds`.

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
        noted: dict[str, list[str]] = defaultdict(list)
        if todo:
            mark_incomplete(target, settings)
            work = partial(
                _resize_image,
                source=plan.folder,
                kind=plan.kind,
                target=target,
                settings=settings,
                strict=strict,
            )
            bar = tqdm(
                total=len(plan.rows),
                initial=len(rows),
                desc=f"resize to {size} px",
                unit=" images",
                disable=not progress or None,
            )
            try:
                with bar, manifest.appending(target, rows) as add:
                    for made in map_in_processes(work, todo, BATCH, num_workers):
                        add(row for row, _ in made)
                        for row, notes in made:
                            for text in notes:
                                noted[text].append(row.image)
                        bar.update(len(made))
            except OSError as error:
                done = sum(not row.problem for row in rows.values())
                raise DataError(disk_error_text(target, error, done, len(plan.rows))) from None
        note = {**settings, "source": os.path.realpath(source), "decoders": decoders()}
        if not todo and before.complete:
            note["decoders"] = before.note.get("decoders", note["decoders"])
        result = [rows[row.image] for row in plan.rows]
        note = finish_target(
            target, note, result, plan.label_files, [plan.folder / name for name in COPIED_FILES]
        )
    only_class = [f"'{plan.only_class}' is the only class"] if plan.only_class else []
    return {
        **note,
        "written": sum(not rows[row.image].problem for row in todo),
        "skipped": len(result) - len(todo),
        "rejected": rejected_images(result),
        "notes": note_texts(noted) + only_class,
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
    plan: ResizePlan, target: Path, before: dict[str, Row], thorough: bool, num_workers: int | None
) -> dict[str, Row]:
    """Return the rows, by image, of written images that can be reused."""
    known = [(row, before[row.image]) for row in plan.rows if row.image in before]
    work = partial(_reusable, source=plan.folder, kind=plan.kind, target=target, thorough=thorough)
    good = map_in_processes(work, known, CHECK_BATCH, num_workers)
    return {row.image: row for rows in good for row in rows if row is not None}


def _reusable(
    rows: tuple[Row, Row], *, source: Path, kind: str, target: Path, thorough: bool
) -> Row | None:
    planned, row = rows
    if row.problem or row.file != planned.file:
        return None
    if not manifest.file_matches(target, row, thorough=thorough):
        return None
    try:
        state = sources.source_state(source, kind, planned.source)
        if state != row.source_state:
            data = sources.read_source(source, kind, planned.source)
            if manifest.sha256_of(data) != row.source_sha256:
                return None
    except (OSError, DataError):  # the error is raised when the image is resized again
        return None
    return row._replace(source=planned.source, source_state=state)


def _resize_image(
    row: Row, *, source: Path, kind: str, target: Path, settings: dict[str, Any], strict: bool
) -> tuple[Row, list[str]]:
    path = os.path.join(source, row.source)  # noqa: PTH118 (speed)
    notes: list[str] = []
    with contextlib.suppress(OSError):  # the next line but one raises the error
        row = row._replace(source_state=sources.source_state(source, kind, row.source))
    try:
        data = sources.read_source(source, kind, row.source)
    except DataError as error:
        row = reject_image(row, text_without_path(error, path), os.fspath(target))
    else:
        row, notes = write_resized(data, row, os.fspath(target), settings, kind)
    if strict and row.problem:
        raise DataError(f"{path}: {row.problem}")
    return row, notes
