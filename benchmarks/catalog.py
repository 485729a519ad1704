"""Compare the time and memory to open and check a long list of images with those of plain pandas.

    python benchmarks/catalog.py [--quick] [--rounds 7]

`labels` is a generated label file as long as the NIH's; the rival is what most notebooks do,
`pandas.read_csv` and `str.get_dummies` on the findings. `list` is a CSV (path, class) of ImageNet's
length, opened by the reader `table`; the rival is `pandas.read_csv`. `there` are as many empty
files as `--images` says, in 1,000 folders, that such a list names; each is looked for. The rivals
check nothing. Each measurement is a new process, including its imports.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import common
from interleaved import interleave, report

NIH, IMAGENET = 112_120, 1_281_167
HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)


def make_labels(folder: Path, rows: int) -> None:
    """A label file of made-up patients, four images and some of the findings each."""
    from data_prep import FINDINGS

    findings = ["No Finding", *FINDINGS, "|".join(FINDINGS[:3])]
    lines = [
        f"{row // 4 + 1:08d}_{row % 4:03d}.png,{findings[row % len(findings)]},{row % 4},"
        f"{row // 4 + 1},58,M,PA,2500,2048,0.168,0.168"
        for row in range(rows)
    ]
    folder.mkdir()
    (folder / "Data_Entry_2017.csv").write_text("\n".join([HEADER, *lines]) + "\n")


def make_list(folder: Path, rows: int, files: bool) -> None:
    """Paths as ImageNet's; a class's images follow each other."""
    folder.mkdir()
    (folder / "table.toml").write_text('file = "list.csv"\npath = "path"\nclass = "class"\n')
    of = [f"n{at * 1000 // rows:08d}" for at in range(rows)]
    paths = [f"train/{name}/{name}_{at}.JPEG" for at, name in enumerate(of)]
    lines = [f"{path},{name}" for path, name in zip(paths, of, strict=True)]
    (folder / "list.csv").write_text("\n".join(["path,class", *lines]) + "\n")
    for path in paths if files else []:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).touch()


def labels(folder: Path) -> Any:
    import data_prep

    return data_prep.open_reader("nih", folder, check_images=False)


def opened(folder: Path, check_images: bool) -> Any:
    from data_prep import open_reader

    return open_reader("table", folder, check_images=check_images)


def pandas(folder: Path, findings: bool) -> Any:
    import pandas as pd

    table = pd.read_csv(next(folder.glob("*.csv")), index_col=False)
    return table.join(table["Finding Labels"].str.get_dummies("|")) if findings else table


WAYS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
    "labels": (labels, partial(pandas, findings=True)),
    "list": (partial(opened, check_images=False), partial(pandas, findings=False)),
    "there": (partial(opened, check_images=True), partial(pandas, findings=False)),
}
"""Ours and the rival, by the name of the folder that they read."""


def once(folder: Path, number: int) -> None:
    """One measurement, in this process: seconds, seconds of a core, megabytes at most."""
    started = time.perf_counter()
    WAYS[folder.name][number](folder)
    seconds = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_SELF)
    # The most memory since this program began; ru_maxrss also counts what its parent had.
    most = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    print(json.dumps([seconds, used.ru_utime + used.ru_stime, int(most[0]) / 1024]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=100_000, help="files to look for")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--once", nargs=2, help=argparse.SUPPRESS)
    given = common.parse(parser, images=2_000)
    if given.once:
        once(Path(given.once[0]), int(given.once[1]))
        return

    def measured(folder: Path, number: int) -> tuple[float, ...]:
        words = [sys.executable, __file__, "--once", str(folder), str(number)]
        return tuple(json.loads(subprocess.check_output(words, text=True)))

    with tempfile.TemporaryDirectory() as place:
        folders = {name: Path(place) / name for name in WAYS}
        make_labels(folders["labels"], NIH)
        make_list(folders["list"], IMAGENET, files=False)
        make_list(folders["there"], given.images, files=True)
        for name, folder in folders.items():
            loads = {
                who: partial(measured, folder, number) for number, who in enumerate(("ours", "p"))
            }
            found = interleave(loads, given.rounds)
            for unit, each in zip(("s", "s of a core", "MB"), found, strict=True):
                report(f"open {name}", unit, each["ours"], each["p"], "pandas")


if __name__ == "__main__":
    main()
