"""Archives, lists of sources and local label files that `data-prep nih` is made to read."""

import gzip
import hashlib
import json
import os
import tarfile

from data_prep_tools import HEADER, row

from hostile.case import Case, Content, Lay, laid

ARCHIVE = "images_001.tar.gz"
LABELS = "Data_Entry_2017.csv"
END = bytes(1024)


def nih(archive: Content = b"", words: str = "--archives {}", **changed: object) -> Lay:
    """A label file, one archive, and a list of sources whose entry is changed."""
    md5 = hashlib.md5(archive if isinstance(archive, bytes) else b"").hexdigest()
    entry = {"name": ARCHIVE, "url": "https://example.org/x", "bytes": None, "md5": md5, **changed}
    sources = {"label_file": {"name": LABELS, "url": "https://example.org/y"}, "archives": [entry]}
    return laid(
        f"data-prep nih {{}}/out --sources {{}}/list.json --size 8 {words}",
        {
            LABELS: f"{HEADER}\n{row('a.png')}\n",
            "list.json": json.dumps(sources),
            ARCHIVE: archive,
        },
    )


def header(size: int = 0, kind: bytes = b"0", link: str = "") -> bytes:
    info = tarfile.TarInfo("a.png")
    info.size, info.type, info.linkname = size, kind, link
    return info.tobuf(tarfile.GNU_FORMAT)


SOUND = header(size=5) + b"image".ljust(512, b"\0") + END

CASES = [
    Case("tar-gz-cut", nih(gzip.compress(SOUND)[:-4]), "damaged or cut", keeps=(LABELS,)),
    Case("tar-pipe", nih(os.mkfifo), "not a file but a pipe"),
    Case("tar-symlink", nih(header(kind=b"2", link="../../etc/passwd") + END), "no image named in"),
    Case("tar-size-2-to-87", nih(header(1 << 87) + b"12345"), "a.png has .* too many"),
    Case("sources-climbing", nih(name="../../x.tar"), "'../../x.tar' is not a bare file name"),
    Case(
        "sources-local-file",
        nih(words=f"--labels {{}}/{LABELS}", url="file:///etc/passwd"),
        "file:///etc/passwd: not an http or https address",
    ),
]
