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

from hostile.case import Case, laid

Put = Callable[[Path], object]


def text(content: str) -> Put:
    return lambda path: path.write_text(content)


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
    "deep in brackets": (text("[" * 200_000), "maximum recursion depth"),
    "larger than the memory": (larger_than_the_memory, "more than the maximum of 16,777,216"),
    "a pipe": (os.mkfifo, "not a file"),
    "of another version": (changed("schema", to=4), "field schema"),
    "escapes in a value": (changed("state", to="\x1b[2J\x1b]0;owned\x07"), "field state"),
    "a field of another type": (changed("devices", "count", to="2"), "field devices/count"),
    "a number out of range": (changed("test", "mean_auc", to=2), "field test/mean_auc"),
}

CASES = [
    Case(f"record: {name}", laid("rosetta report {}", {"Strange-2x/record.json": put}), says)
    for name, (put, says) in STRANGE.items()
]
