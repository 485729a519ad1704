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

from data_prep.catalog import MISSING
from data_prep.errors import DataError
from data_prep.readers.column_mapping import ColumnMapping
from data_prep.readers.csv_rows import CsvRows, read_csv_bytes, split_names, text_format
from data_prep.readers.table_labels import TableLabels

if TYPE_CHECKING:
    import pandas as pd

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
    """Read and check one label file (.csv or .csv.gz); columns of `read_catalog` without `path`.

    The whole NIH file of 112,120 rows takes well under a second.
    """
    import pandas as pd

    rows = CsvRows(Path(file), split_header=True)
    pick = rows.cells(NEEDED)
    # One flat list: a hundred thousand small ones would keep the garbage collector busy for longer
    # than all the parsing takes.
    flat = [cell for block in rows.blocks() for row in block for cell in pick(row)]
    if not flat:
        raise DataError(f"{file}: no rows below the header")
    columns = {name: flat[at :: len(NEEDED)] for at, name in enumerate(NEEDED)}
    images = columns["Image Index"]
    _check(rows, "Image Index", images, NAME_ONLY, "a bare file name, without folders")
    if len(set(images)) != len(images):
        seen: set[str] = set()
        for at, name in enumerate(images):
            if name in seen:
                raise DataError(f"{rows.where(at)}: the image {name} is listed twice")
            seen.add(name)

    table: dict[str, object] = {"image": images}
    for column, name in (("patient", "Patient ID"), ("followup", "Follow-up #")):
        texts = columns[name]
        _check(rows, name, texts, WHOLE_NUMBER, "a whole number")
        table[column] = np.array([int(re.split("[.,]", text)[0]) for text in texts], dtype=np.int64)
    flags = _flags(rows, columns["Finding Labels"]).astype(np.uint8)
    return pd.DataFrame(table | {name: flags[:, at] for at, name in enumerate(FINDINGS)})


def label_files(file: Path, images: set[str]) -> dict[str, bytes | None]:
    """Return the label files of a folder with these images only: one file, all others None."""
    return dict.fromkeys(LABEL_FILES) | {file.name: keep_rows(file, images)}


def keep_rows(file: str | os.PathLike[str], images: set[str]) -> bytes:
    """Return the bytes of a (checked) label file with only the unchanged rows of these images."""
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


def _check(rows: CsvRows, name: str, texts: list[str], form: re.Pattern[str], what: str) -> None:
    # Texts repeat: check each text once, and find the row only if a text is bad.
    bad = {text for text in set(texts) if form.fullmatch(text) is None}
    if bad:
        at, text = next((at, text) for at, text in enumerate(texts) if text in bad)
        raise DataError(f"{rows.where(at)}: '{name}' is {text!r}, expected {what}")


def _flags(rows: CsvRows, cells: list[str]) -> np.ndarray:
    """Return int8 (rows, 14) of 0 and 1."""
    for spelling, name in SPELLINGS.items():
        cells = [cell.replace(spelling, name) for cell in cells]
    labels = TableLabels(MAPPING, f"the findings are {', '.join(FINDINGS)}")
    flags = labels.values(labels.kinds(cells, lambda at, column: rows.where(at)))
    if len(empty := np.flatnonzero(flags[:, 0] == MISSING)):
        raise DataError(f"{rows.where(int(empty[0]))}: 'Finding Labels' is empty; enter a finding")
    return flags


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
