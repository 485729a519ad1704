"""Files that call themselves images."""

import io
import os
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from data_prep_tools import HEADER, row
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


def in_a_data_folder(make: Callable[[Path], object]) -> Callable[[Path], list[str]]:
    """What is not a file is no image of a plain folder; here the label file names it."""

    def lay(folder: Path) -> list[str]:
        (folder / "in" / "images").mkdir(parents=True)
        GREY.save(folder / "in" / "images" / GOOD)
        make(folder / "in" / "images" / "odd.png")
        text = f"{HEADER}\n{row(GOOD)}\n{row('odd.png')}\n"
        (folder / "in" / "Data_Entry_2017.csv").write_text(text)
        return ["data-prep", "resize", str(folder / "in"), str(folder / "out"), "--size", "8"]

    return lay


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
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


def tiff(compression: int, bits: int = 8, kind: int = 1, pages: int = 1) -> bytes:
    """A little-endian TIFF of 8 x 8 pixels: a directory a page, then the one strip they share."""
    tags = [(256, 8), (257, 8), (258, bits), (259, compression), (262, 1), (273, 400), (277, 1),
            (278, 8), (279, 8 * bits), (339, kind)]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    data = b"II*\0" + struct.pack("<I", 8)
    for page in range(pages):
        following = len(data) + len(entries) + 6 if page + 1 < pages else 0
        data += struct.pack("<H", len(tags)) + entries + struct.pack("<I", following)
    return data.ljust(400, b"\0") + bytes(8 * bits)


def wide(largest: int) -> bytes:
    """A 16-bit grey PNG whose brightest pixel is this."""
    ramp = np.linspace(0, largest, 64).astype(">u2")
    return png(
        head(8, 8, 16), pixels(b"".join(b"\0" + line.tobytes() for line in ramp.reshape(8, 8)))
    )


EPS = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 64 64\n%%EndComments\n(id) run showpage\n%%EOF\n"
)
WEBP = b"RIFF\x1a\0\0\0WEBPVP8L\x0e\0\0\0\x2f\0\0\0\x10\x07\x10\x11\x11\x88\x88\xfe\x07\0"
DICOM = bytes(128) + b"DICM" + bytes(200)
WHOLE, JPEG = saved(GREY, "PNG"), saved(GREY, "JPEG")
FRAME = b"fcTL", struct.pack(">IIIIIHHBB", 0, 8, 8, 0, 0, 1, 1, 0, 0)
ANIMATED = png(
    head(8, 8), (b"acTL", struct.pack(">II", 2, 0)), FRAME, pixels(bytes(72)),
    (b"fcTL", struct.pack(">IIIIIHHBB", 1, 8, 8, 0, 0, 1, 1, 0, 0)),
    (b"fdAT", struct.pack(">I", 2) + zlib.compress(bytes(72))),
)  # fmt: skip
GIF = saved(GREY, "GIF", save_all=True, append_images=[Image.new("L", GREY.size)])
FOREIGN = "not a PNG, JPEG, BMP, PPM, TIFF, GIF or WebP"
LEFT = "1 of 2 images were left out"


def sparse(path: Path) -> None:
    with path.open("wb") as out:
        out.truncate(200_000_000_000)


def listening(path: Path) -> None:
    """A socket's name has room for a hundred bytes only, hence the detour."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


CASES = [
    Case("image-empty", file(b""), f"{LEFT}.*the file is empty", keeps=(f"in/{GOOD}",)),
    Case("image-text", file(b"no image"), FOREIGN),
    Case("image-postscript", file(EPS), FOREIGN),
    Case("image-pdf", file(b"%PDF-1.7\n" + EPS), FOREIGN),
    Case("image-dicom", file(DICOM), f"{LEFT}.*(pydicom|DICOM)"),
    Case("image-gif", file(GIF, "odd.gif"), "more than one image"),
    Case("image-gif-cut", file(GIF[:40], "odd.gif"), LEFT),
    Case("image-bomb-of-gif", file(b"GIF89a\xff\xff\xff\xff" + GIF[10:]), "more (pixels )?than"),
    Case("image-ico", file(saved(GREY, "ICO")), FOREIGN),
    Case("image-webp-cut", file(WEBP[:20], "odd.webp"), "WebP.*convert it to PNG|decoder"),
    Case("image-tiff-lzw", file(tiff(5), "odd.tif"), "compressed TIFF.*convert it to PNG|decode"),
    Case("image-tiff-deflate", file(tiff(8), "odd.tif"), "compressed TIFF|decode"),
    Case("image-tiff-jpeg", file(tiff(7), "odd.tif"), "compressed TIFF|decode"),
    Case("image-tiff-unknown", file(tiff(4711), "odd.tif"), "cannot be read as an image"),
    Case("image-tiff-pages", file(tiff(1, pages=2), "odd.tif"), "more than one image"),
    Case("image-tiff-float", file(tiff(1, 32, 3), "odd.tif"), "pixels of mode F"),
    Case("image-tiff-cut", file(tiff(1)[:150], "odd.tif"), "cannot be read as an image"),
    Case("image-animated", file(ANIMATED), "more than one image"),
    Case("image-12-bit", file(wide(4095)), "level 16 of 255, as where 12 bits"),
    Case("image-14-bit", file(wide(16383)), "level 64 of 255"),
    Case("image-8-in-16-bit", file(wide(255)), "level 0 of 255|level 1 of 255"),
    Case(
        "image-12-bit-colour",
        file(png(head(8, 8, 16, 2), pixels((b"\0" + b"\x0f\xff" * 24) * 8))),
        "16-bit values, the brightest at level 15",
    ),
    Case("image-truncated", file(WHOLE[: len(WHOLE) // 2]), LEFT),
    Case("image-header-only", file(WHOLE[:33]), LEFT),
    Case("image-flipped", file(WHOLE[:99] + b"????" + WHOLE[103:]), LEFT),
    Case("image-jpeg-truncated", file(JPEG[: len(JPEG) // 2], "odd.jpg"), LEFT),
    Case("image-jpeg-header-only", file(JPEG[:20], "odd.jpg"), LEFT),
    Case("image-no-pixels", file(png(head(0, 0), pixels(b""))), LEFT),
    Case("image-bomb-of-pixels", file(png(head(100_000, 100_000), pixels(b""))), "more.*than"),
    Case("image-bomb-of-bits", file(png(head(30_000, 3000, 1), pixels(b""))), "30000 x 3000"),
    Case(
        "image-bomb-of-text",
        file(png(head(8, 8, 16), (b"zTXt", b"k\0\0" + zlib.compress(bytes(8 << 20))))),
        LEFT,
    ),
    Case("image-bomb-of-pgm", file(b"P5 65000 65000 255\n", "odd.pgm"), "more (pixels )?than"),
    Case("image-pipe", laid(os.mkfifo), "not a file but a pipe"),
    Case("image-socket", in_a_data_folder(listening), f"{LEFT}.*cannot be read"),
    Case("image-folder", in_a_data_folder(Path.mkdir), f"{LEFT}.*cannot be read"),
    Case("image-device", laid(lambda path: path.symlink_to("/dev/zero")), "not a file but a pipe"),
    Case("image-link-to-nothing", laid(lambda path: path.symlink_to("gone")), "is missing"),
    Case("image-link-to-itself", laid(lambda path: path.symlink_to(path)), LEFT),
    Case("image-sparse-200-GB", laid(sparse), "200,000,000,000 bytes, more than"),
    Case("image-name-not-utf-8", file(b"?", os.fsdecode(b"odd\xff.png")), r"odd\\udcff.png"),
    Case("image-name-of-239-bytes", file(b"?", f"{'x' * 235}.png"), "xxx.png"),
    Case("image-name-of-255-bytes", file(b"?", f"{'x' * 251}.png"), "xxx.png"),
    Case("image-name-escape", file(b"?", "\x1b[2J\x1b]0;x\x07.png"), r"\\x1b\[2J\\x1b\]0;x\\x07"),
    Case("image-name-two-lines", file(b"?", "a\nall is well.png"), r"a\\nall is well.png"),
    Case("image-name-right-to-left", file(b"?", "a\u202egnp.png"), r"a\\u202egnp.png"),
    Case("image-name-formula", file(b"?", "=cmd|' -C calc'!A0.png"), "first is =cmd"),
    Case("image-name-option", file(b"?", "--strict.png"), "first is --strict.png"),
]
