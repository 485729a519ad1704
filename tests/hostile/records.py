"""Records that are none: alone in an experiment they end the report, one line each; beside others
they are set aside (tests/results/test_strange_records.py)."""

import json
import operator
import os
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import records

from hostile.case import Case

Put = Callable[[Path], object]


def text(content: str | bytes) -> Put:
    return lambda path: path.write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )


def changed(*keys: str | int, to: Any) -> Put:
    """A whole record, but for one field."""
    content: Any = records.make()
    *above, last = keys
    reduce(operator.getitem, above, content)[last] = to
    return text(json.dumps(content))


def larger_than_the_memory(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


STRANGE: dict[str, tuple[Put, str]] = {
    "cut short": (text(json.dumps(records.make())[:-9]), "not a JSON file of this project"),
    "not UTF-8": (text(b'{"schema": 3, "reason": "\xff\xfe"}'), "not a JSON file of this project"),
    "a list": (text("[1]"), r"field \(top\)"),
    "deep in brackets": (text("[" * 200_000), "nested too deep"),
    "a number beyond all": (text('{"schema": 1e999}'), "1e999 is no number"),
    "larger than the memory": (larger_than_the_memory, "more than 16 MiB"),
    "a pipe": (os.mkfifo, "not a file"),
    "a folder": (Path.mkdir, "there is no record"),
    "a link to itself": (lambda path: path.symlink_to("record.json"), "no record under"),
    "of another version": (changed("schema", to=4), "field schema"),
    "escapes in a value": (changed("state", to="\x1b[2J\x1b]0;owned\x07"), "field state"),
    "a field of another type": (changed("devices", "count", to="2"), "field devices/count"),
    "a number out of range": (changed("test", "mean_auc", to=2), "field test/mean_auc"),
    "finished without a test": (changed("test", to=None), "field test"),
    "skipped without a reason": (
        text(json.dumps(records.short("Keras", "skipped", ""))),
        "field reason is missing, although the state is skipped",
    ),
}


def in_a_batch(put: Put) -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        (folder / "Strange-2x").mkdir()
        put(folder / "Strange-2x" / "record.json")
        return ["rosetta", "report", str(folder)]

    return lay


def asked_by(*words: str) -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        in_a_batch(text("{"))(folder)
        return ["rosetta", *words, str(folder)]

    return lay


CASES = [
    *(Case(f"record: {name}", in_a_batch(put), says) for name, (put, says) in STRANGE.items()),
    Case("record: compared with", asked_by("diff"), "not a JSON file of this project"),
    Case("record: listed", asked_by("report", "--results"), "not a JSON file of this project"),
]
