"""Resize all images of a folder to small squares once, before training."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from data_prep import files, manifest
from data_prep import prepared_folder as prepared
from data_prep.catalog import Catalog, ending_of, passed_over_text
from data_prep.errors import DataError, count_text
from data_prep.image_decoding import IMAGE_EXTENSIONS, note_texts
from data_prep.manifest import PACKED_FILE, LabelFiles, Row, is_packed, read_prepared
from data_prep.readers import labels_csv, load_catalog, nih
from data_prep.readers.catalog_reader import read_source, source_state

#: Images resized in one batch, and images checked, which takes much less time.
BATCH, CHECK_BATCH = 16, 256


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
    rewrites missing or damaged images.

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
        `rejected` and `notes` (images and reasons), `passed_over` (other files) and `seconds`.

    Raises:
        DataError: an argument, an image or the target is wrong, or the disk is full.
    """
    source, target = Path(source), Path(target)
    started = time.monotonic()
    how = {"channels": channels, "resize_mode": resize_mode}
    settings = prepared.check_settings(size=size, format=format, quality=quality, **how)
    settings["tool"] = prepared.TOOL
    made_of = reader
    if labels_csv.has_labels_csv(source):  # copy the labels and the reader's name
        made_of = (read_prepared(source) or {}).get("reader", reader or "table")
    if made_of not in (None, "nih"):
        settings["reader"] = made_of
    plan = _plan(source, target, skip_missing, prepared.FORMATS[format], reader, options or {})
    found, planned, label_files = plan
    with files.exclusive_lock(target):
        before, old_note = prepared.open_target(target, settings)
        lost = before.keys() - {*found.images}
        if lost := {image for image in lost if not before[image].problem}:
            raise DataError(
                f"{target} has {count_text(lost, 'image', 'images')} that {source} lacks, the"
                f" first: {min(lost)}; name another folder, or remove this folder"
            )
        for folder in {os.path.dirname(row.file) for row in planned}:  # noqa: PTH120
            (target / folder).mkdir(parents=True, exist_ok=True)
            files.remove_temporary_files(target / folder)
        where: dict[str, Any] = {"source": found.folder, "target": target}
        known = [(row, before[row.image]) for row in planned if row.image in before]
        check = partial(_reusable, **where, thorough=not old_note["complete"])
        good = files.map_in_processes(check, known, CHECK_BATCH, num_workers)
        rows = {row.image: row for some in good for row in some if row is not None}
        todo = [row for row in planned if row.image not in rows]
        noted: dict[str, list[str]] = defaultdict(list)
        if todo:
            prepared.write_note(target, settings)
            work = partial(_resize_image, **where, settings=settings)
            making = files.map_in_processes(work, todo, BATCH, num_workers)
            what = f"resize to {size} px", len(planned), progress, len(rows)
            try:
                with manifest.appending(target, rows) as add:
                    for made in files.with_progress(making, *what):
                        add(row for row, _ in made)
                        for row, notes in made:
                            for text in notes:
                                noted[text].append(row.image)
            except OSError as error:
                done = sum(not row.problem for row in rows.values())
                text = prepared.disk_error_text(target, error, done, len(planned))
                raise DataError(text) from None
        note = {**settings, "source": os.path.realpath(source), "decoders": prepared.decoders()}
        if not todo and old_note["complete"]:
            note["decoders"] = old_note.get("decoders", note["decoders"])
        result = [rows[image] for image in found.images]
        demo = prepared.content(found.folder / prepared.DEMO_FILE)
        note = prepared.finish_target(target, note, result, label_files, demo)
    single = len(found.classes) == 1 and found.task == "classes"
    alone = [f"'{found.classes[0]}' is the only class"] if single else []
    return {
        **note,
        "written": sum(not rows[row.image].problem for row in todo),
        "skipped": len(result) - len(todo),
        "rejected": prepared.rejected_images(result),
        "notes": note_texts(noted) + alone,
        "passed_over": dict(found.passed_over),
        "seconds": time.monotonic() - started,
    }


def list_source_images(
    source: Path, reader: str | None, options: Mapping[str, Any], skip_missing: bool = False
) -> tuple[Catalog, Callable[[Mapping[str, str] | None, set[str]], dict[str, bytes | None]]]:
    """Return the images of a data folder, and a function from written files to label files."""
    if is_packed(source):
        raise DataError(f"{source} is a packed folder: name the folder it was packed from")
    if reader in (None, "nih") and not labels_csv.has_labels_csv(source):
        file = nih.find_label_file(source)
        return nih.catalog(source, skip_missing), lambda _, ready: nih.label_files(file, ready)
    found, _ = load_catalog(reader, source, **options)
    return found, partial(labels_csv.encode_label_files, found)


def _plan(
    source: Path,
    target: Path,
    skip_missing: bool,
    ending: str,
    reader: str | None,
    options: Mapping[str, Any],
) -> tuple[Catalog, list[Row], LabelFiles]:
    """Return the images, the row of each before it is read, and what makes the label files."""
    if not source.is_dir():
        what = "is not a folder (unpack an archive)" if source.exists() else "does not exist"
        raise DataError(f"{source} {what}: name a folder of images")
    if files.is_same_path(source, target):
        raise DataError(f"{target} is the source itself: name another folder to write to")
    if files.is_nested(source, target):
        raise DataError(f"{source} and {target}: one lies inside the other; name a folder outside")
    labelled = any((source / name).is_file() for name in (*nih.LABEL_FILES, PACKED_FILE))
    if reader is None and not (labelled or labels_csv.has_labels_csv(source)):
        found = _list_plain_folder(source, target)
        return found, _plain_rows(found, ending), lambda _: {}
    found, labels_for = list_source_images(source, reader, options, skip_missing)
    owner: dict[str, str] = {}
    for name in found.images:
        if (other := owner.setdefault(prepared.target_file(name, ending), name)) != name:
            raise DataError(f"{name} and {other} would be written to one file; rename one")
    rows = [
        Row(name, file, source=place)
        for (file, name), place in zip(owner.items(), found.sources, strict=True)
    ]
    return found, rows, partial(labels_for, {name: file for file, name in owner.items()})


def _plain_rows(found: Catalog, ending: str) -> list[Row]:
    rows = []
    taken = {os.fspath(folder) for name in found.images for folder in Path(name).parents}
    for name in found.images:
        to = os.path.splitext(name)[0] + ending  # noqa: PTH122
        if to in taken:  # x.jpg beside x.png, a file or a folder
            to = name + ending
            if len(os.fsencode(os.path.basename(to))) > 255:  # noqa: PTH119
                raise DataError(f"{found.path(0)}: its name is too long to get {ending}; rename it")
        taken.add(to)
        rows.append(Row(name, to, source=name))
    return rows


def _list_plain_folder(source: Path, target: Path) -> Catalog:
    """List the images of a folder without labels, each folder once."""
    passed_over: Counter[str] = Counter()
    names: list[str] = []

    def unreadable(error: OSError) -> None:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from None

    seen = {os.path.realpath(target)}
    for place, folders, inside in os.walk(source, onerror=unreadable, followlinks=True):
        if os.path.realpath(place) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(place))
        folders[:] = [name for name in folders if not name.startswith((".", "__MACOSX"))]
        folders.sort(key=lambda name: (Path(place, name).is_symlink(), name))
        for name in (name for name in inside if not name.startswith(".")):
            if name.lower().endswith(IMAGE_EXTENSIONS):
                names.append(os.path.relpath(os.path.join(place, name), source))  # noqa: PTH118
            else:
                passed_over[ending_of(name)] += 1
    if not names:
        seen_text = f"; {passed_over_text(passed_over)}" if passed_over else ""
        raise DataError(f"{source}: no label file and no image{seen_text}; name a folder of images")
    names.sort()
    labels = np.zeros((len(names), 0), np.int8)
    return Catalog(source, names, names, (), labels, passed_over=passed_over)


def _reusable(rows: tuple[Row, Row], *, source: Path, target: Path, thorough: bool) -> Row | None:
    """Return the row of an image written earlier, or None if it has to be written again."""
    planned, row = rows
    if row.problem or row.file != planned.file:
        return None
    if not manifest.file_matches(target, row, thorough=thorough):
        return None
    try:
        state = source_state(source, planned.source)
        if state != row.source_state:
            data = read_source(source, planned.source)
            if manifest.sha256_of(data) != row.source_sha256:
                return None
    except (OSError, DataError):  # the error is raised when the image is resized again
        return None
    return row._replace(source=planned.source, source_state=state)


def _resize_image(
    row: Row, *, source: Path, target: Path, settings: prepared.Note
) -> tuple[Row, list[str]]:
    with contextlib.suppress(OSError):  # reading raises the error
        row = row._replace(source_state=source_state(source, row.source))
    try:
        data = read_source(source, row.source)
    except DataError as error:
        problem = prepared.text_without_path(error, os.path.join(source, row.source))  # noqa: PTH118
        return prepared.reject_image(row, problem, os.fspath(target)), []
    return prepared.write_resized(data, row, os.fspath(target), settings)
