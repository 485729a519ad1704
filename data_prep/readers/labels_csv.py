"""Write and read labels.csv and table.toml, the labels in a resized or packed folder.

`labels.csv` has one row per image: name, file, part and group (if any), and labels. Uncertain (-1)
and missing (empty) labels are kept, so a recipe can still choose their treatment. `table.toml`
describes the columns to the reader `table`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from data_prep.catalog import MISSING, NO_PART, Catalog
from data_prep.errors import DataError
from data_prep.folder_state import (
    EXCLUDED_FILE,
    PACKED_FILE,
    PREPARED_FILE,
    LabelFiles,
    is_packed,
    open_array,
    read_excluded,
    read_prepared,
    reader_name,
)
from data_prep.readers import column_mapping, table
from data_prep.split import PARTS

LABELS_FILE = "labels.csv"


def has_labels_csv(folder: Path) -> bool:
    """Return whether data-prep wrote this folder from another reader than `nih`."""
    return (folder / LABELS_FILE).is_file() and any(
        (folder / note).is_file() for note in (PREPARED_FILE, PACKED_FILE)
    )


def catalog(folder: Path, reader: str) -> tuple[Catalog, np.ndarray | None]:
    """Return the catalogue of such a folder, and the pixels if it is packed.

    Raises `DataError` if the folder was written from another reader, or is not complete.
    """
    array = None
    if is_packed(folder):
        array, names = open_array(folder)
        found = table.catalog(folder, check_images=False)
        if list(found.images) != names:
            raise DataError(
                f"{folder}: {LABELS_FILE} and the packed images do not match; pack the folder again"
            )
        made_by = reader_name(folder)
    else:
        note = read_prepared(folder) or {}
        if not note.get("complete"):
            raise DataError(
                f"{folder} is not complete: run the command that wrote it again, which continues"
            )
        found, made_by = table.catalog(folder), note.get("reader", "table")
        if out := read_excluded(folder):
            kept = [at for at, image in enumerate(found.images) if image not in out]
            if not kept:
                raise DataError(
                    f"{folder / EXCLUDED_FILE}: names every image; remove it to use them"
                )
            found = found.select(np.array(kept))
    if reader not in (made_by, "table"):
        raise DataError(
            f"{folder} was written from the reader {made_by}, not {reader}; name the right reader"
        )
    return found, array


def label_files(found: Catalog, files: Mapping[str, str] | None) -> LabelFiles:
    """Return a function that encodes the label files; `files` by image, or None if packed."""
    return partial(_encode_label_files, found, files)


def _encode_label_files(
    found: Catalog, files: Mapping[str, str] | None, ready: set[str]
) -> dict[str, bytes | None]:
    findings = found.task == "findings"
    taken = set(found.classes) if findings else set()

    def free(name: str) -> str:
        while name in taken:
            name += "_"
        return name

    image, file, part, group = map(free, ("image", "file", "split", "group"))
    header = [image, file]
    columns = {"file": LABELS_FILE, "path": file, "name": image}
    if found.parts is not None:
        header.append(part)
        columns["split"] = part
    if found.groups is not None:
        header.append(group)
        columns["group"] = group
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*header, *(found.classes if findings else ["class"])])
    cells = {MISSING: "", -1: "-1", 0: "0", 1: "1"}
    for at, name in enumerate(found.images):
        if name not in ready:
            continue
        row = [name, name if files is None else files[name]]
        if found.parts is not None:
            code = int(found.parts[at])
            row.append("" if code == NO_PART else PARTS[code])
        if found.groups is not None:
            row.append(str(found.groups[at]))
        if findings:
            row += [cells[code] for code in found.labels[at].tolist()]
        else:
            row.append(found.classes[found.labels[at]])
        rows.writerow(row)
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in columns.items()]
    classes = json.dumps(list(found.classes), ensure_ascii=False)
    lines += [f"findings = {classes}"] if findings else ['class = "class"', f"classes = {classes}"]
    return {
        LABELS_FILE: text.getvalue().encode(),
        column_mapping.MAPPING_FILE: ("\n".join(lines) + "\n").encode(),
    }
