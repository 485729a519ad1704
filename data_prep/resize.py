"""Resize all images of a folder to small squares once, before training."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from data_prep import manifest
from data_prep.catalog import Catalog, ending, passed_over_text
from data_prep.errors import DataError, count_text
from data_prep.files import (
    exclusive_lock,
    is_nested,
    is_same_path,
    map_in_processes,
    remove_temporary_files,
)
from data_prep.folder_state import LabelFiles, is_packed, read_prepared
from data_prep.image_decoding import IMAGE_EXTENSIONS, note_texts
from data_prep.manifest import Row
from data_prep.prepared_folder import (
    FORMATS,
    TOOL,
    check_settings,
    decoders,
    disk_error_text,
    finish_target,
    mark_incomplete,
    open_target,
    reject_image,
    rejected_images,
    target_file,
    text_without_path,
    write_resized,
)
from data_prep.readers import catalog_reader as sources
from data_prep.readers import labels_csv, load_catalog, nih
from data_prep.readers.nih_labels import LABEL_FILES, label_files

#: Images resized in one batch, and images checked, which takes much less time.
BATCH, CHECK_BATCH = 16, 256

#: Files to copy to the target; demo.json marks the images as synthetic.
COPIED_FILES = ("demo.json", nih.TRAIN_VALID_FILE, nih.TEST_FILE)


@dataclass
class Plan:
    """The images to write, one row per image, before any image is read."""

    rows: list[Row]
    label_files: LabelFiles | None
    folder: Path
    kind: str = "file"
    passed_over: Mapping[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def resize_folder(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    size: int = 264,
    format: str = "png",
    quality: int = 90,
    num_workers: int | None = None,
    skip_missing: bool = False,
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
        progress: show a progress bar.
        reader: the format of the source (default: `nih`, or that of a prepared folder).
        channels: 1 for grey images, 3 for RGB.
        resize_mode: `stretch`, or `center-crop` for the square in the middle.
        options: options of the reader, as in `open_reader`.

    Returns:
        The contents of `prepared.json`, with `written` and `skipped` (numbers of images),
        `rejected` (names and reasons of unreadable images), `notes` (what the written images
        lost), `passed_over` (numbers of other files by ending) and `seconds`.

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
    plan = _plan(source, target, skip_missing, format, reader, options or {})
    with exclusive_lock(target):
        before = open_target(target, settings)
        lost = before.rows.keys() - {row.image for row in plan.rows}
        if lost := {image for image in lost if not before.rows[image].problem}:
            raise DataError(
                f"{target} has {count_text(lost, 'image', 'images')} that {source} lacks, the"
                f" first: {min(lost)}; name another folder, or remove this folder"
            )
        for folder in {os.path.dirname(row.file) for row in plan.rows}:  # noqa: PTH120
            (target / folder).mkdir(parents=True, exist_ok=True)
            remove_temporary_files(target / folder)
        where: dict[str, Any] = {"source": plan.folder, "kind": plan.kind, "target": target}
        known = [(row, before.rows[row.image]) for row in plan.rows if row.image in before.rows]
        check = partial(_reusable, **where, thorough=not before.complete)
        good = map_in_processes(check, known, CHECK_BATCH, num_workers)
        rows = {row.image: row for some in good for row in some if row is not None}
        todo = [row for row in plan.rows if row.image not in rows]
        noted: dict[str, list[str]] = defaultdict(list)
        if todo:
            mark_incomplete(target, settings)
            work = partial(_resize_image, **where, settings=settings)
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
        beside = [plan.folder / name for name in COPIED_FILES]
        note = finish_target(target, note, result, plan.label_files, beside)
    return {
        **note,
        "written": sum(not rows[row.image].problem for row in todo),
        "skipped": len(result) - len(todo),
        "rejected": rejected_images(result),
        "notes": note_texts(noted) + plan.notes,
        "passed_over": dict(plan.passed_over),
        "seconds": time.monotonic() - started,
    }


def list_source_images(
    source: Path, reader: str | None, options: Mapping[str, Any], skip_missing: bool = False
) -> tuple[Catalog, Callable[[Mapping[str, str] | None, set[str]], dict[str, bytes | None]]]:
    """List the images of a data folder in the NIH's format, or of any other reader.

    The second result is a function from the file of each image (None: packed) and the written
    images to the label files to write.
    """
    if is_packed(source):
        raise DataError(
            f"{source} is a packed folder, one array without files: name the folder it was"
            " packed from"
        )
    if reader is None or reader == "nih":
        file = nih.find_label_file(source)
        return nih.catalog(source, skip_missing), lambda files, ready: label_files(file, ready)
    found, _ = load_catalog(reader, source, **options)
    return found, partial(labels_csv.encode_label_files, found)


def _plan(
    source: Path,
    target: Path,
    skip_missing: bool,
    format: str,
    reader: str | None,
    options: Mapping[str, Any],
) -> Plan:
    """Plan to resize `source` into `target`; `DataError` if this is impossible."""
    if not source.is_dir():
        what = "is not a folder (unpack an archive)" if source.exists() else "does not exist"
        raise DataError(f"{source} {what}: name a folder of images")
    if is_same_path(source, target):
        raise DataError(f"{target} is the source itself: name another folder to write to")
    if is_nested(source, target):
        raise DataError(f"{source} and {target}: one lies inside the other; name a folder outside")
    ending = FORMATS[format]
    labelled = any((source / name).is_file() for name in LABEL_FILES)
    if reader is None and not labelled and not is_packed(source):
        return _plan_without_labels(source, target, ending)
    found, labels_for = list_source_images(source, reader, options, skip_missing)
    files: dict[str, str] = {}
    for name in found.images:
        if (other := files.setdefault(target_file(name, ending), name)) != name:
            raise DataError(f"{name} and {other} would be written to one file; rename one")
    rows = [
        Row(name, file, source=place)
        for (file, name), place in zip(files.items(), found.sources, strict=True)
    ]
    single = found.task == "classes" and len(found.classes) == 1
    return Plan(
        rows,
        partial(labels_for, {name: file for file, name in files.items()}),
        found.folder,
        found.kind,
        found.passed_over,
        [f"'{found.classes[0]}' is the only class"] if single else [],
    )


def _plan_without_labels(source: Path, target: Path, ending: str) -> Plan:
    passed_over: Counter[str] = Counter()
    names = sorted(_find_images(source, target, passed_over))
    if not names:
        seen = f"; {passed_over_text(passed_over)}" if passed_over else ""
        raise DataError(
            f"{source}: no label file and no image ({', '.join(IMAGE_EXTENSIONS)}){seen}; name a"
            " folder of images"
        )
    rows = []
    taken = {os.fspath(folder) for name in names for folder in Path(name).parents}
    for name in names:
        to = os.path.splitext(name)[0] + ending  # noqa: PTH122
        if to in taken:  # x.jpg beside x.png, a file or a folder
            to = name + ending
            if len(os.fsencode(os.path.basename(to))) > 255:  # noqa: PTH119
                raise DataError(f"{source / name}: its name is too long to get {ending}; rename it")
        taken.add(to)
        rows.append(Row(name, to, source=name))
    return Plan(rows, None, source, passed_over=passed_over)


def _find_images(source: Path, target: Path, passed_over: Counter[str]) -> Iterator[str]:
    """Yield image paths within the folder, each folder once; count all other files by ending."""

    def unreadable(error: OSError) -> None:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from None

    seen = {os.path.realpath(target)}
    for place, folders, names in os.walk(source, onerror=unreadable, followlinks=True):
        if os.path.realpath(place) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(place))
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        folders.sort(key=lambda name: (Path(place, name).is_symlink(), name))
        for name in names:
            if name.lower().endswith(IMAGE_EXTENSIONS) and not name.startswith("."):
                yield os.path.relpath(os.path.join(place, name), source)  # noqa: PTH118
            elif not name.startswith("."):
                passed_over[ending(name)] += 1


def _reusable(
    rows: tuple[Row, Row], *, source: Path, kind: str, target: Path, thorough: bool
) -> Row | None:
    """Return the row of an image written earlier, or None if it has to be written again."""
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
    row: Row, *, source: Path, kind: str, target: Path, settings: dict[str, Any]
) -> tuple[Row, list[str]]:
    with contextlib.suppress(OSError):  # reading raises the error
        row = row._replace(source_state=sources.source_state(source, kind, row.source))
    try:
        data = sources.read_source(source, kind, row.source)
    except DataError as error:
        path = os.path.join(source, row.source)  # noqa: PTH118 (speed)
        return reject_image(row, text_without_path(error, path), os.fspath(target)), []
    return write_resized(data, row, os.fspath(target), settings, kind)
