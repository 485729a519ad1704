"""Read a notebook's Markdown cells: their sections, and their links for a copy elsewhere."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|[#/])([^)#\s]+)")
"""A Markdown link's file, without the heading that follows it."""


def rewrite(
    cells: Sequence[Any],
    folders: Sequence[Path],
    target: Path,
    instead: Callable[[Path], Path] = lambda path: path,
) -> None:
    """Let the links of Markdown cells work from ``target``.

    Each link is from the first of ``folders`` where its file is; one that leads nowhere stays as it
    is. ``instead`` makes of its file the one that the copy is to lead to.
    """

    def moved(match: re.Match[str]) -> str:
        for folder in folders:
            if (folder / match[0]).exists():
                path = os.path.relpath(instead((folder / match[0]).resolve()), target.resolve())
                return Path(path).as_posix()
        return match[0]

    for cell in cells:
        if cell["cell_type"] == "markdown":
            text = cell["source"]
            changed = LINK.sub(moved, "".join(text))
            cell["source"] = changed if isinstance(text, str) else changed.splitlines(keepends=True)


def section_of_each_cell(cells: Sequence[Any]) -> list[str]:
    """The ``##`` heading each cell stands under, without the hashes; "" before the first."""
    sections, current = [], ""
    for cell in cells:
        if cell["cell_type"] == "markdown":
            for line in "".join(cell["source"]).splitlines():
                if line.startswith("## "):
                    current = line[3:].strip()
        sections.append(current)
    return sections
