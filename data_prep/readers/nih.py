"""Read a data folder in the NIH's ChestX-ray14 layout: a label file and images/.

`Data_Entry_2017.csv` and `Data_Entry_2017_v2020.csv` are of Wang et al., "ChestX-ray8", CVPR 2017.
Two names of the header contain a comma without quotes, so that nine names make eleven columns; some
copies end the header with one more comma.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from data_prep.catalog import Catalog
from data_prep.errors import DataError
from data_prep.manifest import is_packed, open_array
from data_prep.readers.column_mapping import ColumnMapping

if TYPE_CHECKING:  # imported where needed: pandas takes half a second
    pass

FINDINGS: tuple[str, ...] = (
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
)
"""The 14 findings: the eight of Wang et al. 2017, then the six the NIH added, in its order."""

NO_FINDING = "No Finding"

#: What the columns mean.
MAPPING = ColumnMapping(
    file="Data_Entry_2017.csv",
    path="Image Index",
    group="Patient ID",
    labels="Finding Labels",
    findings=FINDINGS,
    no_finding=(NO_FINDING,),
)

#: The names a label file may have; where a folder has several, the first of these is read.
LABEL_FILES = (
    "Data_Entry_2017_v2020.csv",
    "Data_Entry_2017_v2020.csv.gz",
    "Data_Entry_2017.csv",
    "Data_Entry_2017.csv.gz",
    "sample_labels.csv",  # Kaggle's sample of 5 %
)

#: The folders of images, in the NIH's archives and in Kaggle's.
SEARCHED = "images/, images_*/images/, images-*/images-*/ and sample/images/"

#: No folders, no drive letter, no control characters, not hidden, no space at the end.
NAME_ONLY = re.compile(r"[^./\\:\x00-\x1f][^/\\:\x00-\x1f]*(?<! )")
#: pandas writes 2.0 where a column had an empty cell.
WHOLE_NUMBER = re.compile(r"[0-9]{1,15}(?:[.,]0)?")


class Labels(NamedTuple):
    """The rows of a label file: names of images, numbers of patients, 0 and 1 (images, 14)."""

    images: list[str]
    patients: list[int]
    findings: np.ndarray


def catalog(folder: Path, skip_missing: bool = False, check_images: bool = True) -> Catalog:
    """List the images that the label file of a folder names, in its order.

    An image `x.png` is also found as `x.jpg`. `skip_missing` leaves out images that are named but
    missing. In a packed folder row i is image i of the array.
    """
    packed = is_packed(folder)
    file = find_label_file(folder)
    names, patients, findings = parse_label_file(file)
    if packed and names != open_array(folder)[1]["names"]:
        fix = f"pack it again with 'data-prep pack SOURCE {folder}'"
        raise DataError(f"{folder}: label file and packed images do not match; {fix}")
    here = list_images(folder)
    paths = [here.get(name) or here.get(f"{name.rpartition('.')[0]}.jpg") for name in names]
    prefix = os.path.join(folder, "")  # noqa: PTH118 (which drops the separator)
    found = Catalog(
        folder,
        names,
        [
            f"images/{name}" if path is None else path.removeprefix(prefix)
            for name, path in zip(names, paths, strict=True)
        ],
        FINDINGS,
        findings.astype(np.int8),
        patients,
    )
    missing = [name for name, path in zip(names, paths, strict=True) if path is None]
    if not missing or packed or not (check_images or skip_missing):
        return found
    if not skip_missing or len(missing) == len(names):
        raise DataError(
            f"{folder}: {len(missing):,} of the {len(names):,} images named in {file.name} are"
            f" missing, the first is {missing[0]} (searched {SEARCHED});"
            f" add them, or skip them with --skip-missing"
        )
    return found.select(np.flatnonzero([path is not None for path in paths]))


def find_label_file(folder: str | os.PathLike[str]) -> Path:
    """Return the label file of a data folder (the first of `LABEL_FILES` that exists)."""
    folder = Path(folder)
    if not folder.is_dir():
        what = "is not a folder (unpack an archive)" if folder.exists() else "does not exist"
        raise DataError(f"{folder} {what}: name the folder with the label file and the images")
    for name in LABEL_FILES:
        if (folder / name).is_file():
            return folder / name
    raise DataError(f"{folder}: no label file, such as {LABEL_FILES[0]} (see --reader)")


def list_images(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Return the path of every image of a data folder by file name, without opening files."""
    folder = Path(folder)
    places = [folder / "images", folder / "sample" / "images"]
    for part in sorted(folder.glob("images[_-]*")):
        places += [part / "images", part / part.name, part]
    found: dict[str, str] = {}
    for place in places:
        if not place.is_dir():
            continue
        with os.scandir(place) as entries:
            for entry in entries:
                if not entry.name.startswith("."):
                    found.setdefault(entry.name, entry.path)
    return found


def parse_label_file(file: str | os.PathLike[str]) -> Labels:
    """Read and check a label file (.csv or .csv.gz)."""
    from data_prep.readers import table
    from data_prep.readers.csv_file import CsvFile

    rows = CsvFile(Path(file), split_header=True)
    if rows.table.empty:
        raise DataError(f"{file}: no rows below the header")
    images, patients = rows.column("Image Index"), rows.column("Patient ID")
    bad = ~images.str.fullmatch(NAME_ONLY)
    rows.refuse("Image Index", bad, "is not a bare file name, without folders", images)
    if (twice := images.duplicated()).any():
        at = int(twice.to_numpy().argmax())
        raise DataError(f"{rows.where(at)}: the image {images.iloc[at]} is listed twice")
    bad = ~patients.str.fullmatch(WHOLE_NUMBER)
    rows.refuse("Patient ID", bad, "is not a whole number", patients)
    cells = rows.column("Finding Labels")
    rows.refuse("Finding Labels", cells.str.strip() == "", "is not a finding", cells)
    found = table.named_findings(rows, MAPPING, f"the findings are {', '.join(FINDINGS)}")
    return Labels(
        images.tolist(),
        patients.str.extract("([0-9]+)", expand=False).astype(np.int64).tolist(),
        np.array(found.tolist(), dtype=np.uint8),
    )


def label_files(file: Path, images: set[str]) -> dict[str, bytes | None]:
    """Return the label files of a folder with these images only: one file, all others None."""
    return dict.fromkeys(LABEL_FILES) | {file.name: keep_rows(file, images)}


def keep_rows(file: str | os.PathLike[str], images: set[str]) -> bytes:
    """Return the bytes of a (checked) label file with only the unchanged rows of these images."""
    from data_prep.readers.csv_file import read_csv_bytes, split_names, text_format

    file = Path(file)
    data = read_csv_bytes(file)
    encoding, separator = text_format(data)
    # Lines as the CSV reader counts them: str.splitlines also splits at U+2028 and form feeds.
    lines = list(io.StringIO(data.decode(encoding), newline=""))
    reader = csv.reader(lines, strict=True, delimiter=separator)
    at = split_names(next(reader, [])).index("Image Index")
    kept, start = lines[: reader.line_num], reader.line_num
    dropped = False
    for row in reader:
        if not row or row[at] in images:
            kept += lines[start : reader.line_num]
        else:
            dropped = True
        start = reader.line_num
    if not dropped:
        return file.read_bytes()
    data = "".join(kept).encode()
    # No time in the header: the same rows give the same bytes.
    return gzip.compress(data, mtime=0) if file.suffix == ".gz" else data


@cache
def published_counts() -> dict[str, Any]:
    """Return the NIH's published counts, of nih_counts.json: per finding, set and patient."""
    text = resources.files("data_prep").joinpath("nih_counts.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def finding_counts() -> dict[str, int]:
    """Return the images per finding, in the order of `FINDINGS`."""
    counts = published_counts()["counts"]
    return {finding: int(counts[finding]) for finding in FINDINGS}


def finding_sets() -> list[tuple[tuple[str, ...], int]]:
    """Return each set of findings in the NIH's data set, with the number of its images."""
    return [
        (tuple(FINDINGS["abcdefghijklmn".index(letter)] for letter in letters), int(count))
        for letters, count in published_counts()["combinations"].items()
    ]
