"""Files that call themselves images."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from hostile.case import Case, Content, Lay, laid

GREY = Image.fromarray(np.arange(4096, dtype=np.uint8).reshape(64, 64))
GOOD = "in/good.png"


def beside_a_good_one(content: Content, name: str = "odd.png") -> Lay:
    command = "data-prep resize {}/in {}/out --size 8 --num-workers 1"
    return laid(command, {GOOD: GREY.save, f"in/{name}": content})


def png(width: int, height: int) -> bytes:
    """A PNG that says it is so large, and has no pixels."""
    parts = [b"\x89PNG\r\n\x1a\n"]
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    for kind, body in ((b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")):
        parts.append(struct.pack(">I", len(body)) + kind + body)
        parts.append(struct.pack(">I", zlib.crc32(kind + body)))
    return b"".join(parts)


def cut_short(path: Path) -> None:
    GREY.save(path)
    os.truncate(path, path.stat().st_size // 2)


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 200_000_000_000)


EPS = "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\n(id) run showpage\n%%EOF\n"
LEFT = "1 of 2 images were left out"

CASES = [
    Case(f"image-{name}", beside_a_good_one(content), says, keeps=(GOOD,))
    for name, content, says in (
        ("empty", b"", f"{LEFT}.*the file is empty"),
        ("postscript", EPS, "not a PNG, JPEG, BMP, PPM, TIFF, GIF, WebP or DICOM"),
        ("truncated", cut_short, LEFT),
        ("bomb-of-pixels", png(100_000, 100_000), "more.*than"),
        ("pipe", os.mkfifo, "not a file but a pipe"),
        ("sparse-200-GB", sparse, "200,000,000,000 bytes, more than"),
    )
]
ESCAPES = beside_a_good_one(b"?", "\x1b[2J\x1b]0;x\x07.png")
CASES.append(Case("image-name-escape", ESCAPES, r"\\x1b\[2J\\x1b\]0;x\\x07"))
