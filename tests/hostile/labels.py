"""Label files and lists that are none, that lie, or that want to be more than text."""

import gzip
import os

from data_prep_tools import HEADER, row

from hostile.case import Case, Content, Lay, laid

LABELS = "Data_Entry_2017.csv"
PORTAL = "<!DOCTYPE html>\n<html><body>Welcome! Please log in.</body></html>\n"


def labels(content: Content, name: str = LABELS) -> Lay:
    """A folder with this label file, and what reads it without the images."""
    return laid("data-prep verify --quick {}", {name: content})


def second(line: str) -> str:
    return f"{HEADER}\n{row('fine.png')}\n{line}\n"


CASES = [
    Case("labels-portal-page", labels(PORTAL), "no column 'Image Index'"),
    Case("labels-utf-16", labels(second("").encode("utf-16")[:-1]), "not a text file in UTF-8"),
    Case("labels-climbing", labels(second(row("../../etc/passwd"))), "without folders"),
    Case(
        "labels-escape",
        labels(second(row("\x1b[2J\x1b]0;owned\x07.png"))),
        r"\\x1b\[2J.*without folders",
    ),
    Case(
        "labels-short-row", labels(second("a.png,Mass,0")), "line 3: 3 columns, the header has 11"
    ),
    Case(
        "labels-gz-bomb",
        labels(gzip.compress(bytes(8 << 20), 9) * 33, f"{LABELS}.gz"),
        "unpacks to more than",
    ),
    Case("labels-pipe", labels(os.mkfifo), "no label file"),
]
