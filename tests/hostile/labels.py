"""Label files and lists that are none, that lie, or that want to be more than text."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

from data_prep_tools import HEADER, make_folder, row

from hostile.case import Case

LABELS = "Data_Entry_2017.csv"


def content(data: bytes, name: str = LABELS) -> Callable[[Path], list[str]]:
    """A folder with these bytes as its label file, and what reads it without the images."""

    def lay(folder: Path) -> list[str]:
        (folder / name).write_bytes(data)
        return ["data-prep", "stats", str(folder), "--labels-only"]

    return lay


def rows(*lines: str, header: str = HEADER) -> Callable[[Path], list[str]]:
    return content("".join(f"{line}\n" for line in (header, row("fine.png"), *lines)).encode())


def sparse(folder: Path) -> list[str]:
    with (folder / LABELS).open("wb") as file:
        file.truncate(200_000_000_000)
    return ["data-prep", "stats", str(folder), "--labels-only"]


def pipe(folder: Path) -> list[str]:
    os.mkfifo(folder / LABELS)
    return ["data-prep", "stats", str(folder)]


def loop(folder: Path) -> list[str]:
    (folder / LABELS).symlink_to(folder / LABELS)
    return ["data-prep", "stats", str(folder)]


def mirrored(folder: Path) -> list[str]:
    """A name that a terminal would show from right to left, of an image that is not there."""
    (folder / LABELS).write_text(f"{HEADER}\n{row('x' + chr(0x202E) + 'gnp.exe')}\n", "utf-8")
    return ["data-prep", "stats", str(folder)]


def lists(spoil: Callable[[Path], object]) -> Callable[[Path], list[str]]:
    """A sound folder with the NIH's two lists, of which the first is then spoilt."""

    def lay(folder: Path) -> list[str]:
        names = sorted(path.name for path in (make_folder(folder / "set") / "images").iterdir())
        (folder / "set" / "test_list.txt").write_text("\n".join(names[20:]))
        (folder / "set" / "train_val_list.txt").write_text("\n".join(names[:20]))
        spoil(folder / "set" / "train_val_list.txt")
        return ["data-prep", "stats", str(folder / "set"), "--official-split"]

    return lay


def as_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


PORTAL = b"<!DOCTYPE html>\n<html><body>Welcome! Please log in.</body></html>\n"
WHOLE = f"{HEADER}\n{row('a.png')}\n"

CASES = [
    Case("labels-empty", content(b""), "empty; expected", keeps=(LABELS,)),
    Case("labels-header-only", content(HEADER.encode()), "no rows below the header"),
    Case("labels-blank-lines", content(b"\n\n\n"), "empty; expected"),
    Case("labels-portal-page", content(PORTAL), "no column 'Image Index'"),
    Case("labels-no-patient", rows(header=HEADER.replace("Patient ID", "Who")), "'Patient ID'"),
    Case("labels-utf-16", content(WHOLE.encode("utf-16")[:-1]), "not a text file in UTF-8"),
    Case("labels-utf-16-no-mark", content(WHOLE.encode("utf-16-le")), "no column|NUL"),
    Case("labels-latin-1", content(WHOLE.replace("PA", "é").encode("latin-1")), "not a text file"),
    Case("labels-zip", content(b"PK\x03\x04" + bytes(range(256))), "not a text file in UTF-8"),
    Case("labels-nul", rows(row("a\0.png")), "NUL|without folders"),
    Case("labels-twice", rows(row("fine.png")), "line 3: the image fine.png is listed twice"),
    Case("labels-climbing", rows(row("../../etc/passwd")), "without folders"),
    Case("labels-absolute", rows(row("/etc/passwd")), "without folders"),
    Case("labels-drive", rows(row("C:x.png")), "without folders"),
    Case("labels-hidden", rows(row(".x.png")), "without folders"),
    Case("labels-escape", rows(row("\x1b[2J\x1b]0;owned\x07.png")), r"\\x1b\[2J.*without folders"),
    Case("labels-two-line-name", rows(row('"a\nb.png"')), r"'a\\nb.png'.*without folders"),
    Case("labels-no-name", rows(row("")), "without folders"),
    Case("labels-finding-escape", rows(row("a.png", "\x1b[31mMass")), r"'\\x1b\[31mMass' is not"),
    Case("labels-finding-huge", rows(row("a.png", "M" * 100_000)), "not one of the findings"),
    Case("labels-finding-unknown", rows(row("a.png", "Masss")), "line 3: 'Masss'.*mean 'Mass'"),
    Case("labels-finding-beside", rows(row("a.png", "Mass|No Finding")), "line 3:.*beside a find"),
    Case("labels-finding-empty", rows(row("a.png", "")), "line 3: 'Finding Labels' is empty"),
    Case("labels-deep-parent", rows(row("x/../../a.png")), "line 3.*without folders"),
    Case("labels-backslash", rows(row("..\\a.png")), "line 3.*without folders"),
    Case("labels-dots", rows(row("..")), "line 3.*without folders"),
    Case("labels-patient-negative", rows(row("a.png", patient=-3)), "'Patient ID' is '-3'"),
    Case("labels-cell-too-long", rows(row("a.png", "M" * 200_000)), "no comma-separated values"),
    Case("labels-patient-huge", rows(row("a.png", patient="9" * 5000)), "'Patient ID' is '999"),
    Case("labels-patient-other-digits", rows(row("a.png", patient="١٢")), "a whole number"),
    Case("labels-patient-nan", rows(row("a.png", patient="nan")), "'Patient ID' is 'nan'"),
    Case("labels-follow-up", rows(row("a.png", followup="0.5")), "'Follow-up #' is '0.5'"),
    Case("labels-open-quote", rows('"a.png,Mass,0,1'), "no comma-separated values"),
    Case("labels-short-row", rows("a.png,Mass,0"), "line 3: 3 columns, the header has 11"),
    Case("labels-long-row", rows(row("a.png") + ",1"), "line 3: 12 columns, the header has 11"),
    Case("labels-gz-cut", content(gzip.compress(WHOLE.encode())[:-9], f"{LABELS}.gz"), "cannot be"),
    Case("labels-gz-is-none", content(WHOLE.encode(), f"{LABELS}.gz"), "cannot be read"),
    Case(
        "labels-gz-bomb",
        content(gzip.compress(bytes(8 << 20), 9) * 33, f"{LABELS}.gz"),
        "unpacks to more than",
    ),
    Case("labels-sparse-200-GB", sparse, "200,000,000,000 bytes, more than"),
    Case("labels-pipe", pipe, "no label file"),
    Case("labels-link-to-itself", loop, "no label file"),
    Case("labels-right-to-left-name", mirrored, r"the first is x\\u202egnp.exe"),
    Case("list-pipe", lists(as_pipe), "train_val_list.txt: cannot be read .not a file but a pipe"),
    Case("list-binary", lists(lambda file: file.write_bytes(b"\xff\xfe\0")), "cannot be read"),
    Case("list-empty", lists(lambda file: file.write_text(" \n\n")), "no file names in it"),
    Case("list-one-line", lists(lambda file: file.write_text("a b c")), "in neither list"),
    Case("list-sparse", lists(lambda file: os.truncate(file, 200_000_000_000)), "more than the"),
]
