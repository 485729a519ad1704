"""Bound a cell's output, which would else fill the memory of the runner and the notebook file."""

from collections.abc import Mapping
from typing import Any

MOST = 10_000_000
"""Characters of a cell's output that a notebook keeps."""
NOTE = "\n[The rest of this cell's output is left out: it has more than 10 MB.]\n"


def size(content: Mapping[str, Any]) -> int:
    """Characters of an output, as a notebook's file has it."""
    return len(content["text"]) if "text" in content else len(str(content.get("data", "")))


def bounded(
    kind: str, content: Mapping[str, Any], taken: int
) -> tuple[str, Mapping[str, Any]] | None:
    """A cell's next output, after ``taken`` characters: whole, cut with a note, or None."""
    if kind == "error" or taken + size(content) <= MOST:
        return kind, content
    if taken > MOST:
        return None
    kept = content.get("text", "")[: MOST - taken]
    return "stream", {"name": content.get("name", "stdout"), "text": kept + NOTE}
