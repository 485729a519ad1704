"""Write and read labels.csv and table.toml, the labels in a resized or packed folder.

Uncertain (-1) and missing (empty) labels are kept, so a recipe can still choose their treatment.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from data_prep.catalog import MISSING, NO_SPLIT, Catalog
from data_prep.errors import DataError
from data_prep.manifest import PACKED_FILE, PREPARED_FILE, is_packed, open_array, read_prepared
from data_prep.readers import column_mapping
from data_prep.split import SPLITS

LABELS_FILE = "labels.csv"


def has_labels_csv(folder: Path) -> bool:
    """Return whether data-prep wrote this folder from another reader than `nih`."""
    return (folder / LABELS_FILE).is_file() and any(
        (folder / note).is_file() for note in (PREPARED_FILE, PACKED_FILE)
    )


def catalog(folder: Path, reader: str) -> tuple[Catalog, np.ndarray | None]:
    """Return the catalogue of such a folder, and the pixels if it is packed."""
    from data_prep.readers import table  # imports pandas

    array = None
    if is_packed(folder):
        array, packed = open_array(folder)
        found = table.catalog(folder, check_images=False)
        if list(found.images) != packed["names"]:
            raise DataError(f"{folder}: {LABELS_FILE} and the images do not match; pack it again")
        made_by = packed.get("reader", "nih")
    else:
        note = read_prepared(folder) or {}
        if not note.get("complete"):
            raise DataError(f"{folder} is not complete: run the command that wrote it again")
        found, made_by = table.catalog(folder), note.get("reader", "table")
    if reader not in (made_by, "table"):
        raise DataError(f"{folder} was written from the reader {made_by}, not {reader}; name it")
    return found, array


def encode_label_files(
    found: Catalog, files: Mapping[str, str] | None, ready: set[str]
) -> dict[str, bytes | None]:
    """Return the label files of the images in `ready`; `files` is None for a packed file."""
    findings = found.task == "findings"
    taken = set(found.classes) if findings else set()

    def free(name: str) -> str:
        while name in taken:
            name += "_"
        return name

    keep = [at for at, name in enumerate(found.images) if name in ready]
    chosen = found.select(np.array(keep, dtype=np.int64))
    names, path = chosen.images, free("file")
    table: dict[str, Sequence[object]] = {
        free("image"): names,
        path: names if files is None else [files[name] for name in names],
    }
    columns = {"file": LABELS_FILE, "path": path, "name": free("image")}
    if chosen.splits is not None:
        columns["split"] = free("split")
        table[columns["split"]] = ["" if at == NO_SPLIT else SPLITS[at] for at in chosen.splits]
    if chosen.groups is not None:
        columns["group"] = free("group")
        table[columns["group"]] = chosen.groups
    if findings:
        cells = {MISSING: "", -1: "-1", 0: "0", 1: "1"}
        for name, labels in zip(found.classes, chosen.labels.T.tolist(), strict=True):
            table[name] = [cells[code] for code in labels]
    else:
        table["class"] = [found.classes[label] for label in chosen.labels]
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerows([table, *zip(*table.values(), strict=True)])
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in columns.items()]
    classes = json.dumps(list(found.classes), ensure_ascii=False)
    lines += [f"findings = {classes}"] if findings else ['class = "class"', f"classes = {classes}"]
    return {
        LABELS_FILE: text.getvalue().encode(),
        column_mapping.MAPPING_FILE: ("\n".join(lines) + "\n").encode(),
    }
