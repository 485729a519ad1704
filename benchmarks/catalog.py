"""Compare the time to read and check a label file with that of plain pandas.

    python benchmarks/catalog.py [FOLDER] [--quick] [--rounds 9]

FOLDER holds the label file (default: a generated one, as long as the NIH's).

The rival is what most notebooks do: `pandas.read_csv`, then `str.get_dummies` on the findings.
It checks nothing. Rounds are interleaved; the figures are medians.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

import pandas as pd
import quick
import turns

import data_prep
from data_prep.readers.nih import find_label_file

HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)
ROWS = 112_120
"""The NIH's."""


def generated(folder: Path) -> Path:
    """A label file of made-up patients, four images and some of the findings each."""
    findings = ["No Finding", *data_prep.FINDINGS, "|".join(data_prep.FINDINGS[:3])]
    lines = [
        f"{row // 4 + 1:08d}_{row % 4:03d}.png,{findings[row % len(findings)]},{row % 4},"
        f"{row // 4 + 1},58,M,PA,2500,2048,0.168,0.168"
        for row in range(ROWS)
    ]
    (folder / "Data_Entry_2017.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    return folder


def rival(folder: Path) -> pd.DataFrame:
    table = pd.read_csv(find_label_file(folder), index_col=False)
    return table.join(table["Finding Labels"].str.get_dummies("|"))


def ours(folder: Path) -> pd.DataFrame:
    return data_prep.read_catalog(folder, check_images=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=quick.folder, nargs="?")
    parser.add_argument("--rounds", type=int, default=9)
    given = quick.parse(parser)
    with tempfile.TemporaryDirectory() as scratch:
        measure(given.folder or generated(Path(scratch)), given.rounds)


def measure(folder: Path, rounds: int) -> None:
    print(f"{len(ours(folder)):,} rows")
    loads = {"ours": ours, "pandas": rival}
    each = {name: partial(turns.seconds, partial(read, folder)) for name, read in loads.items()}
    clock, _ = turns.by_turns(each, rounds)
    turns.report("catalogue the label file", "s", clock["ours"], clock["pandas"], "pandas")


if __name__ == "__main__":
    main()
