"""Measure the time and memory to open, check and split a list of ImageNet's length.

    python benchmarks/large_catalog.py [--images 1281167] [--files 100000] [--rounds 7] [--quick]

`list` is a generated CSV (path, class) of so many rows, opened by the reader `table` with every row
checked but no image looked for; the rival is plain `pandas.read_csv`, which checks nothing.
`there` are so many empty files in 1,000 folders, named in such a list and looked for one by one.
`folders` are the same files as the reader `imagefolder` finds them. Each round is a process of its
own, in turns; figures are medians of seconds, of seconds of one core, and the most memory of any.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import quick

MAPPING = 'file = "list.csv"\npath = "path"\nclass = "class"\n'
CLASSES = 1000


def name(at: int, images: int) -> str:
    """A path as ImageNet's; a class's images follow each other."""
    of = at * CLASSES // images
    return f"train/n{of:08d}/n{of:08d}_{at}.JPEG"


def make(folder: Path, images: int, files: bool) -> None:
    folder.mkdir()
    (folder / "table.toml").write_text(MAPPING)
    with (folder / "list.csv").open("w") as out:
        out.write("path,class\n")
        for at in range(images):
            path = name(at, images)
            out.write(f"{path},{path[6:15]}\n")
            if files:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).touch()


def opened(folder: Path, reader: str = "table", **how: Any) -> Any:
    from data_prep import open_reader

    return open_reader(reader, folder, **how)


def rival(folder: Path) -> Any:
    import pandas as pd

    return pd.read_csv(folder / "list.csv")


WAYS: dict[str, Callable[[Path], Any]] = {
    "list": partial(opened, check_images=False),
    "list and split": lambda folder: opened(folder, check_images=False).parts()["train"],
    "pandas": rival,
    "there": opened,
    "folders": partial(opened, reader="imagefolder"),
}


def once(way: str, folder: str) -> None:
    """One round, in this process: seconds, seconds of a core, megabytes at most; imports too."""
    started = time.perf_counter()
    found = len(WAYS[way](Path(folder)))
    seconds = time.perf_counter() - started
    used = resource.getrusage(resource.RUSAGE_SELF)
    core = used.ru_utime + used.ru_stime
    print(json.dumps([found, seconds, core, used.ru_maxrss / 1024]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=1_281_167)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--once", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    given = quick.parse(parser, images=20_000, files=2_000)
    if given.once:
        once(*given.once)
        return
    with tempfile.TemporaryDirectory() as place:
        long, short = Path(place, "long"), Path(place, "short")
        make(long, given.images, files=False)
        make(short, given.files, files=True)
        folder_of = dict.fromkeys(WAYS, long) | {"there": short, "folders": short}
        found: dict[str, list[list[float]]] = {way: [] for way in WAYS}
        for _ in range(given.rounds):
            for way, folder in folder_of.items():
                words = [sys.executable, __file__, "--once", way, str(folder)]
                found[way].append(json.loads(subprocess.check_output(words, text=True)))
    for way, results in found.items():
        count, seconds, core, _ = map(statistics.median, zip(*results, strict=True))
        most = max(result[3] for result in results)
        print(
            f"{way:15} {count:10,.0f} images  {seconds:6.2f} s  {core:6.2f} s core  {most:6.0f} MB"
        )
        figure = {"figure": f"open a catalogue: {way}", "unit": "s", "ours": seconds}
        print(json.dumps(figure | {"core": core, "megabytes": most, "rounds": given.rounds}))


if __name__ == "__main__":
    main()
