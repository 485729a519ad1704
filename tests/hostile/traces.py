"""Traces and requests that gpumon did not write, or not like that.

A header that is wrong is refused; a line that is wrong is left out, and the command says so.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpumon_tools import Spans, write

from gpumon.recording import LONGEST_LINE, MOST_SERIES
from hostile.case import Case, Content, Lay, laid

ESCAPES = "\x1b]0;owned\x07\x1b[2J\nred\u202e"
SAMPLES, SPANS = KEEPS = ("t.jsonl", "t.phases.jsonl")
SUMMARY, PLOT, EXPORT = (
    "gpumon summary {}/t",
    "gpumon plot {}/t -o {}/out.png",
    "gpumon export {}/t -o {}/out.csv",
)


def sound(path: Path, name: str = "train", **attributes: Any) -> None:
    spans: Spans = ((name, 0.0, 4.0, {"items": 8, **attributes}),)
    write(path, {"gpu0": [10.0, 20.0, 30.0, 40.0]}, spans=spans)


def trace(content: Content, command: str = SUMMARY, file: str = SAMPLES) -> Lay:
    """A sound trace, one of whose files is another, or is changed."""
    return laid(command, {"t": sound, file: content})


def header(**changes: Any) -> Callable[[Path], object]:
    """Other values in a trace's header."""

    def change(file: Path) -> None:
        first, _, rest = file.read_text().partition("\n")
        file.write_text(f"{json.dumps(json.loads(first) | changes)}\n{rest}")

    return change


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def endless(file: Path) -> None:
    file.write_text("")
    os.truncate(file, 50 * LONGEST_LINE)


WRONG: list[tuple[str, Content, str]] = [
    ("header is a list", '["gpumon", 1]\n', "no header line"),
    (
        "too many series",
        header(series=[{"key": f"a/{n}"} for n in range(MOST_SERIES + 1)]),
        "lists more than",
    ),
    ("newer version", header(gpumon=99), "format 99.*update gpumon"),
    ("deep header", '{"gpumon":1,"x":' + "[" * 200_000, "no whole line"),
    ("a pipe", pipe, "is not a file that could hold a trace"),
    ("huge and empty", endless, "lines has no end"),
]
# Damaged lines of an otherwise sound trace: left out, and reported.
DAMAGED = "1 damaged line of t left out"
LEFT_OUT = [
    ("torn line", '[4, 0, 5{"t": 4, "ev', SUMMARY, SAMPLES),
    ("sample nested deep", "[4, 0, " + "[" * 99_999 + "]" * 99_999 + "]", PLOT, SAMPLES),
    ("span of text", '["B", "1", 7, 9, "x", {}]', PLOT, SPANS),
]


def one_line_more(text: str) -> Callable[[Path], object]:
    return lambda file: file.write_text(f"{file.read_text()}{text}\n")


CASES = [
    *(Case(f"trace: {name}", trace(content), says) for name, content, says in WRONG),
    *(
        Case(f"trace: {name}", trace(one_line_more(text), command, file), DAMAGED, 0, KEEPS)
        for name, text, command, file in LEFT_OUT
    ),
    Case(
        "trace: start is huge", trace(header(**{"start (unix s)": 10**400}), EXPORT), "is damaged"
    ),
    Case(
        "trace: not there",
        lambda folder: ["gpumon", "summary", str(folder / ESCAPES)],
        "no trace at .*does not exist",
    ),
    Case(
        "trace: escapes in a phase drawn",
        laid(PLOT, {"t": lambda path: sound(path, ESCAPES, epoch=ESCAPES)}),
        "^$",
        0,
        KEEPS,
    ),
]
