"""Files that call themselves images."""

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from hostile.case import Case

GREY = Image.fromarray(np.arange(4096, dtype=np.uint8).reshape(64, 64))
GOOD = "good.png"


def file(data: bytes, name: str = "odd.png") -> Callable[[Path], list[str]]:
    """A folder of a good image and this one, and what reads both."""
    return laid(lambda path: path.write_bytes(data), name)


def laid(make: Callable[[Path], object], name: str = "odd.png") -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        (folder / "in").mkdir()
        GREY.save(folder / "in" / GOOD)
        make(folder / "in" / name)
        words = ["data-prep", "resize", str(folder / "in"), str(folder / "out")]
        return [*words, "--size", "8", "--num-workers", "1"]

    return lay


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


EPS = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\n(id) run showpage\n%%EOF\n"
)
FOREIGN = "not a PNG, JPEG, BMP, PPM, TIFF, GIF, WebP or DICOM"
LEFT = "1 of 2 images were left out"


def sparse(path: Path) -> None:
    with path.open("wb") as out:
        out.truncate(200_000_000_000)


CASES = [
    Case("image-empty", file(b""), f"{LEFT}.*the file is empty", keeps=(f"in/{GOOD}",)),
    Case("image-postscript", file(EPS), FOREIGN),
    Case("image-truncated", laid(cut_short), LEFT),
    Case("image-bomb-of-pixels", file(png(100_000, 100_000)), "more.*than"),
    Case("image-pipe", laid(os.mkfifo), "not a file but a pipe"),
    Case("image-sparse-200-GB", laid(sparse), "200,000,000,000 bytes, more than"),
    Case("image-name-escape", file(b"?", "\x1b[2J\x1b]0;x\x07.png"), r"\\x1b\[2J\\x1b\]0;x\\x07"),
]
