"""Folders of prepared or packed images that somebody, or a broken disk, has changed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from data_prep_tools import make_folder

from hostile.case import Case

LABELS = "Data_Entry_2017.csv"
HEADER = "image,file,bytes,sha256,source,source_sha256,source_state,problem"
NOTE = {
    "tool": "data_prep resize 1",
    "size": 8,
    "format": "png",
    "resampling": "data_prep in C",
    "source": "/elsewhere",
    "images": 12,
    "complete": True,
}
#: What a damaged file's line has to lead to.
AGAIN = "remove it and run again"


def lay_images(folder: Path) -> None:
    """A small data folder: a label file and 12 images of 12 patients."""
    make_folder(folder, patients=12, images=1, size=8)


def row(image: str, **cells: object) -> str:
    whole = {"file": f"images/{image}", "bytes": 70, "sha256": "0" * 64, "source": image}
    whole |= {"source_sha256": "1" * 64, "source_state": "", "problem": ""}
    return ",".join(map(str, [image, *(whole | cells).values()]))


def prepared(folder: Path, command: str, files: dict[str, bytes]) -> list[str]:
    """A prepared folder with these files in it, met by a command."""
    lay_images(folder / "source")
    lay_images(folder / "small")
    for name, content in ({"prepared.json": json.dumps(NOTE).encode()} | files).items():
        (folder / "small" / name).write_bytes(content)
    if command == "verify":
        return ["data-prep", command, str(folder / "small")]
    return ["data-prep", command, str(folder / "source"), str(folder / "small"), "--size", "8"]


def manifest(*rows: str) -> dict[str, bytes]:
    return {"manifest.csv": "".join(f"{line}\n" for line in (HEADER, *rows)).encode()}


def note(**changed: object) -> dict[str, bytes]:
    return {"prepared.json": json.dumps(NOTE | changed).encode()}


def pipe(folder: Path) -> list[str]:
    words = prepared(folder, "resize", {})
    (folder / "small" / "manifest.csv").unlink(missing_ok=True)
    os.mkfifo(folder / "small" / "manifest.csv")
    return words


def packed(folder: Path, change: Callable[[Path, dict[str, Any]], None]) -> list[str]:
    """A packed folder that `change` has been at, given its note."""
    lay_images(folder)
    images = np.stack([np.full((8, 8), place, np.uint8) for place in range(12)])
    np.save(folder / "images.npy", images)
    names = sorted(file.name for file in (folder / "images").iterdir())
    note = {"tool": "x", "images": 12, "size": 8, "names": names, "complete": True}
    change(folder, note)
    if not (folder / "packed.json").exists():
        (folder / "packed.json").write_text(json.dumps(note))
    return ["data-prep", "verify", str(folder)]


def void(_: object) -> None:
    """What a change gives back."""


DAMAGED = {
    "prepared.json, cut short": ("resize", {"prepared.json": b'{"complete": tr'}),
    "manifest.csv, zeros": ("verify", {"manifest.csv": f"{HEADER}\n".encode() + bytes(200)}),
}
PACKED: dict[str, tuple[Callable[[Path, dict[str, Any]], None], str]] = {
    "a pickle": (
        lambda folder, note: np.save(folder / "images.npy", np.array([{}]), allow_pickle=True),
        r"images\.npy: cannot be read",
    ),
    "names of other images": (
        lambda folder, note: void(note.update(names=["../../x.png"] * 12)),
        "do not match",
    ),
}
OTHERS: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "a row that climbs out is not followed": (
        partial(
            prepared,
            command="resize",
            files=manifest(row("../../x.png", file="../../../etc/passwd", bytes=1)),
        ),
        r"has 1 image that .* lacks, the first: \.\./\.\./x\.png",
    ),
    "another tool's folder": (
        partial(prepared, command="resize", files=note(tool="\x1b]0;owned\x07") | manifest()),
        "written with another tool",
    ),
    "a pipe as manifest": (pipe, "manifest.csv: .* but a pipe"),
}


def cases() -> Iterator[Case]:
    kept = (f"small/{LABELS}", "small/images/00000003_000.png", "source/images/00000003_000.png")
    for what, (command, files) in DAMAGED.items():
        lay = partial(prepared, command=command, files=files)
        yield Case(what, lay, f"damaged.*{AGAIN}", keeps=kept)
    for what, (change, says) in PACKED.items():
        yield Case(f"packed, {what}", partial(packed, change=change), says, keeps=(LABELS,))
    for what, (other, says) in OTHERS.items():
        yield Case(f"prepared, {what}", other, says, keeps=kept)


CASES = list(cases())
