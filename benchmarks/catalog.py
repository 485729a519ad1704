"""How fast the label file becomes a table: ours, with every row checked, against plain pandas.

    python benchmarks/catalog.py LABEL_FILE_FOLDER [--quick]

The rival is what most notebooks do: `pandas.read_csv`, then `str.get_dummies` on the findings.
It checks nothing. Rounds are interleaved; the figures are medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

import data_prep
from data_prep.readers.nih import find_label_file


def rival(folder: Path) -> pd.DataFrame:
    table = pd.read_csv(find_label_file(folder), index_col=False)
    return table.join(table["Finding Labels"].str.get_dummies("|"))


def ours(folder: Path) -> pd.DataFrame:
    return data_prep.read_catalog(folder, check_images=False)


def seconds(read: Callable[[Path], pd.DataFrame], folder: Path) -> float:
    start = time.perf_counter()
    read(folder)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true", help="3 rounds instead of 9")
    given = parser.parse_args()
    rounds = 3 if given.quick else 9
    pairs = [(seconds(ours, given.folder), seconds(rival, given.folder)) for _ in range(rounds)]
    mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(other / own for own, other in pairs)
    print(f"{len(ours(given.folder)):,} rows: ours {mine:.2f} s, plain pandas {theirs:.2f} s")
    figure = {"figure": "catalogue the label file", "unit": "s", "ours": mine, "rival": theirs}
    print(json.dumps(figure | {"rival_name": "pandas", "ratio": ratio, "rounds": rounds}))


if __name__ == "__main__":
    main()
