"""Files that call themselves images."""

import io
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


def saved(kind: str) -> bytes:
    buffer = io.BytesIO()
    GREY.save(buffer, kind)
    return buffer.getvalue()


def png(*chunks: tuple[bytes, bytes]) -> bytes:
    parts = [b"\x89PNG\r\n\x1a\n"]
    for kind, body in (*chunks, (b"IEND", b"")):
        parts.append(struct.pack(">I", len(body)) + kind + body)
        parts.append(struct.pack(">I", zlib.crc32(kind + body)))
    return b"".join(parts)


def head(width: int, height: int, depth: int = 8, colour: int = 0) -> tuple[bytes, bytes]:
    return b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)


def pixels(rows: bytes) -> tuple[bytes, bytes]:
    return b"IDAT", zlib.compress(rows)


def tiff(compression: int) -> bytes:
    """A little-endian TIFF of 8 x 8 pixels: a directory, then its one strip."""
    tags = [(256, 8), (257, 8), (258, 8), (259, compression), (262, 1), (273, 400), (277, 1),
            (278, 8), (279, 64), (339, 1)]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    data = b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)
    return data.ljust(400, b"\0") + bytes(64)


def wide(largest: int) -> bytes:
    """A 16-bit grey PNG whose brightest pixel is this."""
    ramp = np.linspace(0, largest, 64).astype(">u2")
    return png(
        head(8, 8, 16), pixels(b"".join(b"\0" + line.tobytes() for line in ramp.reshape(8, 8)))
    )


EPS = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\n(id) run showpage\n%%EOF\n"
)
DICOM = bytes(128) + b"DICM" + bytes(200)
WHOLE, JPEG = saved("PNG"), saved("JPEG")
FRAME = b"fcTL", struct.pack(">IIIIIHHBB", 0, 8, 8, 0, 0, 1, 1, 0, 0)
ANIMATED = png(
    head(8, 8), (b"acTL", struct.pack(">II", 2, 0)), FRAME, pixels(bytes(72)),
    (b"fcTL", struct.pack(">IIIIIHHBB", 1, 8, 8, 0, 0, 1, 1, 0, 0)),
    (b"fdAT", struct.pack(">I", 2) + zlib.compress(bytes(72))),
)  # fmt: skip
FOREIGN = "not a PNG, JPEG, BMP, PPM, TIFF, GIF, WebP or DICOM"
LEFT = "1 of 2 images were left out"


def sparse(path: Path) -> None:
    with path.open("wb") as out:
        out.truncate(200_000_000_000)


CASES = [
    Case("image-empty", file(b""), f"{LEFT}.*the file is empty", keeps=(f"in/{GOOD}",)),
    Case("image-postscript", file(EPS), FOREIGN),
    Case("image-dicom", file(DICOM), f"{LEFT}.*(pydicom|DICOM)"),
    Case("image-tiff-lzw", file(tiff(5), "odd.tif"), "compressed TIFF.*convert it to PNG|decode"),
    Case("image-animated", file(ANIMATED), "more than one image"),
    Case("image-12-bit", file(wide(4095)), "level 16 of 255, as where 12 bits"),
    Case("image-truncated", file(WHOLE[: len(WHOLE) // 2]), LEFT),
    Case("image-jpeg-truncated", file(JPEG[: len(JPEG) // 2], "odd.jpg"), LEFT),
    Case("image-bomb-of-pixels", file(png(head(100_000, 100_000), pixels(b""))), "more.*than"),
    Case("image-pipe", laid(os.mkfifo), "not a file but a pipe"),
    Case("image-sparse-200-GB", laid(sparse), "200,000,000,000 bytes, more than"),
    Case("image-name-not-utf-8", file(b"?", os.fsdecode(b"odd\xff.png")), r"odd\\udcff.png"),
    Case("image-name-escape", file(b"?", "\x1b[2J\x1b]0;x\x07.png"), r"\\x1b\[2J\\x1b\]0;x\\x07"),
]
