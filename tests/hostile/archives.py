"""Archives, lists of sources and local label files that `data-prep nih` is made to read."""

import gzip
import hashlib
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

from data_prep_tools import HEADER, row

from hostile.case import Case

ARCHIVE = "images_001.tar.gz"
LABELS = "Data_Entry_2017.csv"
END = bytes(1024)


def archive(*data: bytes) -> Callable[[Path], list[str]]:
    """A folder with a label file and one archive of these bytes."""

    def lay(folder: Path) -> list[str]:
        (folder / ARCHIVE).write_bytes(b"".join(data))
        return nih(folder)

    return lay


def nih(folder: Path, **changed: object) -> list[str]:
    (folder / LABELS).write_text(f"{HEADER}\n{row('a.png')}\n")
    archive = folder / ARCHIVE
    md5 = hashlib.md5(archive.read_bytes() if archive.is_file() else b"").hexdigest()
    entry = {"name": ARCHIVE, "url": "https://example.org/x", "bytes": None, "md5": md5, **changed}
    sources = {"label_file": {"name": LABELS, "url": "https://example.org/y"}, "archives": [entry]}
    (folder / "list.json").write_text(json.dumps(sources))
    words = ["data-prep", "nih", str(folder / "out"), "--archives", str(folder)]
    return [*words, "--sources", str(folder / "list.json"), "--size", "8"]


def header(name: str = "a.png", size: int = 0, kind: bytes = b"0", link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info.tobuf(tarfile.GNU_FORMAT)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def made() -> bytes:
    """A sound archive of one text file that is called an image."""
    return header(size=5) + padded(b"image") + END


def is_pipe(folder: Path) -> list[str]:
    os.mkfifo(folder / ARCHIVE)
    return nih(folder)


PASSWORDS = "../../etc/passwd"

CASES = [
    Case("tar-gz-cut", archive(gzip.compress(made())[:-4]), "damaged or cut", keeps=(LABELS,)),
    Case("tar-pipe", is_pipe, "not a file but a pipe"),
    Case("tar-symlink", archive(header(kind=b"2", link=PASSWORDS), END), "no image named in"),
    Case("tar-size-2-to-87", archive(header("a.png", 1 << 87), b"12345"), "a.png has .* too many"),
    Case(
        "sources-climbing",
        lambda folder: nih(folder, name="../../x.tar"),
        "'../../x.tar' is not a bare file name",
    ),
    Case(
        "sources-local-file",
        lambda folder: (
            [
                word
                for word in nih(folder, url="file:///etc/passwd")
                if word not in ("--archives", str(folder))
            ]
            + ["--labels", str(folder / LABELS)]
        ),
        "file:///etc/passwd: not an http or https address",
    ),
]
