"""Folders of prepared or packed images that somebody, or a broken disk, has changed."""

import json
import os
from pathlib import Path

import numpy as np
from data_prep_tools import make_folder

from hostile.case import Case, Content, Lay, laid

HEADER = "image,file,bytes,sha256,source,source_sha256,source_state,problem\n"
CLIMBING = f"../../x.png,../../../etc/passwd,1,{'0' * 64},../../x.png,{'1' * 64},,\n"
NOTE = {
    "tool": "data_prep resize 1",
    "size": 8,
    "format": "png",
    "resampling": "data_prep in C",
    "source": "/elsewhere",
    "images": 12,
    "complete": True,
}
RESIZE = "data-prep resize {}/source {}/small --size 8"
KEPT = tuple(
    f"{place}/{name}"
    for place in ("small", "source")
    for name in ("Data_Entry_2017.csv", "images/00000003_000.png")
)


def images(folder: Path) -> None:
    """A small data folder: a label file and 12 images of 12 patients."""
    make_folder(folder, patients=12, images=1, size=8)


def prepared(name: str, content: Content, command: str = RESIZE, **changed: str) -> Lay:
    """A source, and a prepared folder with a file of this name in it, met by a command."""
    files: dict[str, Content] = {"source": images, "small": images}
    files["small/prepared.json"] = json.dumps(NOTE | changed)
    return laid(command, files | {f"small/{name}": content})


def packed(array: np.ndarray, names: list[str]) -> Lay:
    note = {"tool": "x", "images": 12, "size": 8, "names": names, "complete": True}
    files: dict[str, Content] = {
        "small": images,
        "small/images.npy": lambda path: np.save(path, array, allow_pickle=True),
        "small/packed.json": json.dumps(note),
    }
    return laid("data-prep verify {}/small", files)


AGAIN = "damaged.*remove it and run again"
NAMES = [f"{number:08d}_000.png" for number in range(1, 13)]

CASES = [
    *(
        Case(f"prepared, {what}", lay, says, keeps=KEPT)
        for what, lay, says in (
            ("note cut short", prepared("prepared.json", '{"complete": tr'), AGAIN),
            (
                "zeros in the manifest",
                prepared("manifest.csv", HEADER + "\0" * 200, "data-prep verify {}/small"),
                AGAIN,
            ),
            (
                "a row that climbs out is not followed",
                prepared("manifest.csv", HEADER + CLIMBING),
                r"has 1 image that .* lacks, the first: \.\./\.\./x\.png",
            ),
            (
                "another tool's folder",
                prepared("manifest.csv", HEADER, tool="\x1b]0;owned\x07"),
                "written with another tool",
            ),
            ("a pipe as manifest", prepared("manifest.csv", os.mkfifo), "but a pipe"),
        )
    ),
    *(
        Case(f"packed, {what}", packed(array, names), says, keeps=KEPT[:2])
        for what, array, names, says in (
            ("a pickle", np.array([{}]), NAMES, r"images\.npy: cannot be read"),
            (
                "names of other images",
                np.zeros((12, 8, 8), np.uint8),
                ["../../x.png"] * 12,
                "do not match",
            ),
        )
    ),
]
