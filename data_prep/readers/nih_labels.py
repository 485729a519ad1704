"""Read and check the NIH's label file and convert it to a table.

Source of the format: `Data_Entry_2017.csv` and `Data_Entry_2017_v2020.csv` of ChestX-ray14 (Wang
et al., "ChestX-ray8", CVPR 2017). Its header holds two names with a comma inside and no quotes,
`OriginalImage[Width,Height]` and `OriginalImagePixelSpacing[x,y]`, so that nine names make eleven
columns; some copies end the header with one more comma.
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
from typing import TYPE_CHECKING, Any

import numpy as np

from data_prep.errors import DataError
from data_prep.readers.column_mapping import ColumnMapping

if TYPE_CHECKING:  # imported where needed: pandas takes half a second
    import pandas as pd

    from data_prep.readers.csv_file import CsvFile

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

#: Other spellings in the NIH's papers and side files (BBox_List_2017.csv has "Infiltrate").
SPELLINGS = {"Pleural Thickening": "Pleural_Thickening", "Infiltrate": "Infiltration"}

#: What the column of findings means.
MAPPING = ColumnMapping(
    file="Data_Entry_2017.csv",
    path="Image Index",
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

#: Required columns; the other columns of the NIH's file are optional.
NEEDED = ("Image Index", "Finding Labels", "Follow-up #", "Patient ID")

#: No folders, no drive letter, no control characters, not hidden, no space at the end.
NAME_ONLY = re.compile(r"[^./\\:\x00-\x1f][^/\\:\x00-\x1f]*(?<! )")
#: pandas writes 2.0 where a column had an empty cell.
WHOLE_NUMBER = re.compile(r"[0-9]{1,15}(?:[.,]0)?")


def parse_label_file(file: str | os.PathLike[str]) -> pd.DataFrame:
    """Read and check one label file (.csv or .csv.gz); columns of `read_catalog` without `path`."""
    import pandas as pd

    from data_prep.readers.csv_file import CsvFile

    rows = CsvFile(Path(file), split_header=True)
    if rows.table.empty:
        raise DataError(f"{file}: no rows below the header")
    texts = {name: rows.column(name) for name in NEEDED}
    images = texts["Image Index"]
    _check(rows, "Image Index", NAME_ONLY, "a bare file name, without folders")
    if (twice := images.duplicated()).any():
        at = int(twice.to_numpy().argmax())
        raise DataError(f"{rows.where(at)}: the image {images.iloc[at]} is listed twice")
    columns: dict[str, object] = {"image": images}
    for column, name in (("patient", "Patient ID"), ("followup", "Follow-up #")):
        _check(rows, name, WHOLE_NUMBER, "a whole number")
        columns[column] = texts[name].str.extract("([0-9]+)", expand=False).astype(np.int64)
    flags = _flags(rows)
    return pd.DataFrame(columns | {name: flags[:, at] for at, name in enumerate(FINDINGS)})


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


def _check(rows: CsvFile, name: str, form: re.Pattern[str], what: str) -> None:
    texts = rows.column(name)
    bad = ~texts.str.fullmatch(form)
    rows.refuse(name, bad, lambda cell: f"'{name}' is {cell!r}, expected {what}", texts)


def _flags(rows: CsvFile) -> np.ndarray:
    """Return uint8 (rows, 14) of 0 and 1."""
    from data_prep.readers import table

    cells = rows.column("Finding Labels")
    rows.refuse(
        "Finding Labels", cells.str.strip() == "", lambda _: "empty; enter a finding", cells
    )
    for spelling, name in SPELLINGS.items():
        cells = cells.str.replace(spelling, name, regex=False)
    rows.table[rows.header.index("Finding Labels")] = cells
    found = table.named_findings(rows, MAPPING, f"the findings are {', '.join(FINDINGS)}")
    return np.array(found.tolist(), dtype=np.uint8)


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
