"""Recognise the layout of a published data set, for `data-prep init`.

The columns of its label file tell which data set a folder contains. The first row and its image
tell the rest of the mapping: the folders, the images' extension and a prefix to remove.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.errors import DataError
from data_prep.image_decoding import IMAGE_EXTENSIONS
from data_prep.readers import load_catalog
from data_prep.readers.csv_rows import CsvRows
from data_prep.readers.nih_labels import LABEL_FILES
from data_prep.readers.path_safety import UNSAFE_PATH, missing_prefix
from data_prep.split import PARTS

#: Label files are searched in the folder and one level below.
LABEL_PATTERNS = ("*.csv", "*.csv.gz", "*/*.csv", "*/*.csv.gz")

#: Columns, folders or files that an error message lists.
MOST_LISTED = 12


class Layout(NamedTuple):
    """A published data set: the columns of its label file, and the keys of `table.toml`.

    Without `findings` or `class` in the keys, every column that is not in `others` is a finding.
    """

    name: str
    columns: tuple[str, ...]
    keys: dict[str, Any]
    others: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    """Columns that a row and the row of a second file share, which then has the findings."""
    rgb: bool = False


LAYOUTS = (
    Layout(
        "CheXpert",
        ("Path", "Frontal/Lateral", "No Finding"),
        {"path": "Path", "group": "Path", "group_pattern": "patient[0-9]+"},
        others=("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", "No Finding"),
    ),
    Layout(
        "MIMIC-CXR",
        ("dicom_id", "study_id", "subject_id", "split"),
        {
            "path": "files/p{subject_id:2}/p{subject_id}/s{study_id}/{dicom_id}",
            "group": "subject_id",
            "split": "split",
        },
        others=("No Finding",),
        joined=("subject_id", "study_id"),
    ),
    Layout(
        "PadChest",
        ("ImageID", "ImageDir", "PatientID", "Labels"),
        {
            "path": "{ImageDir}/{ImageID}",
            "group": "PatientID",
            "labels": "Labels",
            "label_format": "list",
            "findings": [
                "alveolar pattern",
                "atelectasis",
                "cardiomegaly",
                "consolidation",
                "emphysema",
                "hiatal hernia",
                "infiltrates",
                "interstitial pattern",
                "laminar atelectasis",
                "nodule",
                "pleural effusion",
                "pneumonia",
                "pneumothorax",
                "pulmonary fibrosis",
            ],
            "no_finding": ["normal"],
            "handle_unknown": "ignore",
        },
    ),
    Layout(
        "RSNA Pneumonia",
        ("patientId", "x", "y", "width", "height", "Target"),
        {"path": "{patientId}", "findings": ["Target"], "merge_rows": True},
    ),
    Layout(
        "VinDr-CXR",
        ("image_id", "rad_id", "Aortic enlargement", "No finding"),
        {"path": "{image_id}", "merge_rows": True},
        others=("image_id", "rad_id", "No finding"),
    ),
    Layout(
        "VinDr-CXR of Kaggle",
        ("image_id", "class_name", "class_id", "rad_id"),
        {
            "path": "{image_id}",
            "labels": "class_name",
            "findings": [
                "Aortic enlargement",
                "Atelectasis",
                "Calcification",
                "Cardiomegaly",
                "Consolidation",
                "ILD",
                "Infiltration",
                "Lung Opacity",
                "Nodule/Mass",
                "Other lesion",
                "Pleural effusion",
                "Pleural thickening",
                "Pneumothorax",
                "Pulmonary fibrosis",
            ],
            "no_finding": ["No finding"],
            "merge_rows": True,
        },
    ),
    Layout(
        "HAM10000",
        ("lesion_id", "image_id", "dx"),
        {"path": "{image_id}", "group": "lesion_id", "class": "dx"},
        rgb=True,
    ),
    Layout(
        "ISIC 2020",
        ("image_name", "patient_id", "benign_malignant"),
        {"path": "{image_name}", "group": "patient_id", "class": "benign_malignant"},
        rgb=True,
    ),
    Layout(
        "ISIC 2018 or 2019",
        ("image", "MEL", "NV", "BCC"),
        {"path": "{image}"},
        others=("image",),
        rgb=True,
    ),
)


class Recognised(NamedTuple):
    """The reader of a folder; for the reader `table` also the mapping of its columns."""

    layout: str
    reader: str
    mapping: dict[str, Any]
    rgb: bool


def recognise(folder: Path) -> Recognised:
    """Return the layout of a folder; `DataError`, with what it contains, if it is unknown."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: name the folder with the images and labels")
    if any((folder / name).is_file() for name in LABEL_FILES):
        return Recognised("the NIH's ChestX-ray14", "nih", {}, rgb=False)
    csvs = {file for pattern in LABEL_PATTERNS for file in folder.glob(pattern)}
    files = sorted(file for file in csvs if not file.name.startswith("."))
    if not files:
        return _class_folders(folder)
    tables = {file.relative_to(folder).as_posix(): CsvRows(file) for file in files}
    for layout in LAYOUTS:
        names = [name for name, rows in tables.items() if set(layout.columns) <= set(rows.header)]
        if names:
            mapping = _mapping(folder, layout, names, tables)
            return Recognised(layout.name, "table", mapping, layout.rgb)
    seen = [f"{name} with the columns {_listed(rows.header)}" for name, rows in tables.items()]
    raise _unknown(folder, " and ".join(seen[:3]))


def _class_folders(folder: Path) -> Recognised:
    seen = f"no CSV file, but {_listed(sorted(os.listdir(folder))) or 'nothing'}"  # noqa: PTH208
    try:
        found, _ = load_catalog("imagefolder", folder)
    except DataError as error:
        raise _unknown(folder, f"{seen} ({error})") from None
    if len(found.classes) < 2:
        raise _unknown(folder, seen)
    return Recognised("a folder per class", "imagefolder", {}, rgb=True)


def _unknown(folder: Path, seen: str) -> DataError:
    return DataError(
        f"{folder}: the layout is unknown: there is {seen}; describe a CSV file in table.toml (see"
        " docs/table-toml.md), or put the images in a folder per class"
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more


def _mapping(
    folder: Path, layout: Layout, names: list[str], tables: dict[str, CsvRows]
) -> dict[str, Any]:
    """Return the keys of `table.toml`, with the paths of the images as they are on the disk."""
    first, labels = tables[names[0]], tables[names[0]]
    mapping: dict[str, Any] = {"file": _by_part(folder, names)}
    if layout.joined:
        needed = {*layout.joined, *layout.others}
        second = [name for name, rows in tables.items() if needed <= set(rows.header)]
        if not second:
            raise DataError(
                f"{folder}: {layout.name} without the CSV file of its labels, with the columns"
                f" {', '.join(sorted(needed))}; put it beside {names[0]}"
            )
        mapping["join"] = {"file": second[0], "on": list(layout.joined)}
        labels = tables[second[0]]
    mapping |= layout.keys | _paths(folder, first, layout.keys["path"], len(names) > 1)
    if not {"findings", "class"} & mapping.keys():
        others = {*layout.others, *layout.joined}
        mapping["findings"] = [name for name in labels.header if name not in others]
    return mapping


def _by_part(folder: Path, names: list[str]) -> str | dict[str, str]:
    if len(names) == 1:
        return names[0]
    parts = {}
    for name in names:
        part = next((part for part in PARTS if part in Path(name).name.lower()), "")
        if not part or part in parts:
            raise DataError(
                f"{folder}: {_listed(names)} have the same columns; keep one of them in the"
                f" folder, or one for each of {', '.join(PARTS)}"
            )
        parts[part] = name
    return parts


def _paths(folder: Path, rows: CsvRows, pattern: str, several: bool) -> dict[str, str]:
    """Return `path` and `remove_prefix` by which the image of the first row is found."""
    row = next(rows.blocks(), [[]])[0]
    path = rows.pattern(pattern)(row) if row else ""
    if UNSAFE_PATH.search(path) or os.path.isfile(folder / path):  # noqa: PTH113
        return {"path": pattern}
    if prefix := missing_prefix(folder, path):
        return {"path": pattern, "remove_prefix": prefix}
    place, _, name = path.rpartition("/")
    found = next(_files_called(folder, name, place), None) if "{" in pattern else None
    if found is None:
        raise DataError(
            f"{rows.where(0)}: the image {path} is nowhere in {folder}; unpack the images there,"
            " and name the folder above images and labels"
        )
    inside, ending = found
    if inside != place:
        # The other images may be in folders that differ in the number at the end.
        inside = "**" if several else re.sub(r"[0-9]+(?=/|$)", "*", inside)
        pattern = f"{inside}/{pattern.rpartition('/')[2]}".lstrip("/")
    return {"path": pattern + ending}


def _files_called(folder: Path, name: str, place: str) -> Iterator[tuple[str, str]]:
    """Yield folder and extension of each image file with this name; first those in `place`."""
    for top in (folder / place, folder):
        for at, folders, names in os.walk(top):
            folders[:] = sorted(inner for inner in folders if not inner.startswith("."))
            for file in sorted(names):
                ending = file[len(name) :] if file.startswith(name) else None
                if ending == "" or (ending or "").lower() in (*IMAGE_EXTENSIONS, ".dicom"):
                    inside = Path(at).relative_to(folder).as_posix()
                    yield ("" if inside == "." else inside), ending or ""
