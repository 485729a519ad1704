"""Traces and requests that gpumon did not write, or not like that.

A header that is wrong is refused; a line that is wrong is left out, and the command says so.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpumon_tools import Marks, write

from gpumon.recording import LONGEST_LINE, MOST_SERIES
from hostile.case import Case

ESCAPES = "\x1b]0;owned\x07\x1b[2J\nred\u202e"
KEEPS = ("t.jsonl", "t.marks.jsonl")
TRAIN: Marks = (("train", 0.0, 4.0, {"items": 8}),)

Lay = Callable[[Path], list[str]]


def trace(folder: Path) -> Path:
    return write(folder / "t", {"gpu0": [10.0, 20.0, 30.0, 40.0]}, marks=TRAIN)


def reading(folder: Path, command: str = "summary") -> list[str]:
    """The command that reads the folder's trace."""
    more = {
        "summary": [],
        "plot": ["-o", str(folder / "out.png")],
        "export": ["-o", str(folder / "out.csv")],
    }[command]
    return ["gpumon", command, str(folder / "t"), *more]


def header(command: str = "summary", /, **changes: Any) -> Lay:
    """A trace whose header has other values."""

    def lay(folder: Path) -> list[str]:
        file = trace(folder).with_name("t.jsonl")
        first, *rest = file.read_text().splitlines()
        file.write_text("\n".join([json.dumps(json.loads(first) | changes), *rest]) + "\n")
        return reading(folder, command)

    return lay


def content(data: bytes) -> Lay:
    """A trace that is nothing but these bytes."""

    def lay(folder: Path) -> list[str]:
        trace(folder).with_name("t.jsonl").write_bytes(data)
        return reading(folder)

    return lay


def line(text: str, command: str = "summary", file: str = "t.jsonl") -> Lay:
    """A sound trace with one line more."""

    def lay(folder: Path) -> list[str]:
        trace(folder)
        with (folder / file).open("a") as stream:
            stream.write(text + "\n")
        return reading(folder, command)

    return lay


def escapes(folder: Path) -> list[str]:
    """A phase whose name has control characters."""
    write(folder / "t", {"gpu0": [1.0] * 4}, marks=((ESCAPES, 0.0, 3.0, {"epoch": ESCAPES}),))
    return reading(folder, "plot")


def instead(make: Callable[[Path], object]) -> Lay:
    """Something else where the trace should be."""

    def lay(folder: Path) -> list[str]:
        file = trace(folder).with_name("t.jsonl")
        file.unlink()
        make(file)
        return reading(folder)

    return lay


def endless(file: Path) -> None:
    file.touch()
    os.truncate(file, 50 * LONGEST_LINE)


WRONG = [
    Case("trace: header is a list", content(b'["gpumon", 1]\n'), "no header line"),
    Case("trace: start is huge", header("export", **{"start (unix s)": 10**400}), "is damaged"),
    Case("trace: too many series",
         header(series=[{"key": f"a/{n}"} for n in range(MOST_SERIES + 1)]), "lists more than"),
    Case("trace: newer version", header(gpumon=99), "format 99.*update gpumon"),
    Case("trace: deep header", content(b'{"gpumon":1,"x":' + b"[" * 200_000), "no whole line"),
    Case("trace: a pipe", instead(os.mkfifo), "is not a file that could hold a trace"),
    Case("trace: huge and empty", instead(endless), "lines has no end"),
    Case("trace: not there", lambda folder: ["gpumon", "summary", str(folder / ESCAPES)],
         "no trace at .*does not exist"),
]  # fmt: skip

# Damaged lines of an otherwise sound trace: left out, and reported.
LEFT_OUT = [
    Case(f"trace: {name}", line(text, command, file), "1 damaged line of t left out", 0, KEEPS)
    for name, text, command, file in (
        ("torn line", '[4, 0, 5{"t": 4, "ev', "summary", KEEPS[0]),
        ("sample nested deep", "[4, 0, " + "[" * 99_999 + "]" * 99_999 + "]", "plot", KEEPS[0]),
        ("mark of text", '["B", "1", 7, 9, "x", {}]', "plot", KEEPS[1]),
    )
]  # fmt: skip

HARMLESS = [Case("trace: escapes in a phase drawn", escapes, "^$", 0, KEEPS)]

CASES = WRONG + LEFT_OUT + HARMLESS
