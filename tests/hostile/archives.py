"""Archives, lists of sources and local label files that `data-prep nih` is made to read."""

import gzip
import io
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
    """A folder with a label file and one archive, without a checksum, of these bytes."""

    def lay(folder: Path) -> list[str]:
        (folder / ARCHIVE).write_bytes(b"".join(data))
        return nih(folder)

    return lay


def nih(folder: Path, **changed: object) -> list[str]:
    (folder / LABELS).write_text(f"{HEADER}\n{row('a.png')}\n")
    entry = {"name": ARCHIVE, "url": "https://example.org/x", "bytes": None, "md5": None, **changed}
    sources = {"label_file": {"name": LABELS, "url": "https://example.org/y"}, "archives": [entry]}
    (folder / "list.json").write_text(json.dumps(sources))
    words = ["data-prep", "nih", str(folder / "out"), "--archives", str(folder)]
    return [*words, "--sources", str(folder / "list.json"), "--size", "8"]


def listing(text: str) -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        words = nih(folder)
        (folder / "list.json").write_text(text)
        return words

    return lay


def header(name: str = "a.png", size: int = 0, kind: bytes = b"0", link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info.tobuf(tarfile.GNU_FORMAT)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def pax(*records: tuple[str, str]) -> bytes:
    """An extended header with these records."""
    data = b""
    for key, value in records:
        body = f" {key}={value}\n".encode()
        length = len(body) + len(str(len(body)))
        length += len(str(length)) - len(str(len(body)))
        data += f"{length}".encode() + body
    return header("pax", len(data), b"x") + padded(data)


def made() -> bytes:
    """A sound archive of one text file that is called an image."""
    return header(size=5) + padded(b"image") + END


def is_pipe(folder: Path) -> list[str]:
    os.mkfifo(folder / ARCHIVE)
    return nih(folder)


def is_sparse(folder: Path) -> list[str]:
    with (folder / ARCHIVE).open("wb") as file:
        file.write(made())
        file.truncate(200_000_000_000)
    return nih(folder)


def is_missing(folder: Path) -> list[str]:
    return nih(folder)


def crowd() -> bytes:
    """Twenty thousand headers, each announcing the next."""
    return pax(("comment", "x")) * 20_000


def bomb() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        info = tarfile.TarInfo("a.txt")
        info.size = 100 << 20
        tar.addfile(info, io.BytesIO(bytes(info.size)))
    return buffer.getvalue()


PASSWORDS = "../../etc/passwd"

CASES = [
    Case("tar-missing", is_missing, "the archive is missing"),
    Case("tar-gz-cut", archive(gzip.compress(made())[:-4]), "damaged or cut", keeps=(LABELS,)),
    Case("tar-pipe", is_pipe, "not a file but a pipe"),
    Case("tar-sparse-200-GB", is_sparse, "belong to no file; refused"),
    Case("tar-climbing", archive(header("images/../../a.png"), END), "points outside the folder"),
    Case("tar-symlink", archive(header(kind=b"2", link=PASSWORDS), END), "is a link"),
    Case("tar-escape", archive(header("\x1b[2J.png"), END), r"\\x1b\[2J.png' has an unsafe name"),
    Case("tar-twice", archive(made()[:1024], made()), "a.png occurs twice"),
    Case("tar-size-2-to-87", archive(header("a.txt", 1 << 87), b"12345"), "more than can be in it"),
    Case("tar-pax-nested", archive(crowd()), "an invalid header"),
    Case("tar-bomb", archive(bomb()), "more than can be in it"),
    Case("tar-no-image", archive(made()), "1 of 1 images were left out|no image"),
    Case("sources-without-archives", listing('{"label_file": {"name": "x"}}'), "not a list of"),
    Case(
        "sources-climbing",
        lambda folder: nih(folder, name="../../x.tar"),
        "'../../x.tar' is not a bare file name",
    ),
    Case("sources-checksum-is-a-list", lambda folder: nih(folder, md5=[]), r"archives\[0\]\.md5"),
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
        "file:///etc/passwd: only http and https",
    ),
]
