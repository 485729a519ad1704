"""Identify a run by its recipe, its data and the code that trained it."""

import hashlib
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import paths
from helpers.record import this_notebook

if TYPE_CHECKING:  # not loaded to read a record
    import pandas as pd


def follow(notebook: Path) -> Callable[[], str]:
    """What gives, whenever it is called, the SHA-256 of the code that a run has had so far.

    That is the notebook's code cells as its file has them now, parameters apart, each other cell
    that IPython runs from the cell that runs now, and the packages they import.
    """
    code, parameters = this_notebook.code_cells(notebook)
    known = {cell.strip() for cell in ("", *code, *parameters)}
    first = max(len(this_notebook.history()) - 1, 0)

    def digest() -> str:
        ran = this_notebook.history()[first:]
        others = dict.fromkeys(cell for cell in ran if cell.strip() not in known)
        return hashlib.sha256("".join([*code, *others]).encode() + _packages()).hexdigest()

    return digest


@cache
def _packages() -> bytes:
    """All modules, but the monitor's, which only looks on, as they were when a run first began."""
    found = []
    for package in ("helpers", "data_prep"):
        for module in sorted((paths.ROOT / package).rglob("*.py")):
            found += [module.relative_to(paths.ROOT).as_posix().encode(), module.read_bytes()]
    return b"".join(found)


def images(split: "pd.DataFrame", classes: Sequence[str]) -> Any:
    """A SHA-256, to be updated, over names, groups and labels of a table of ``image_data.Data``."""
    found = hashlib.sha256(f"{tuple(classes)}\n".encode())
    columns = "class" if "class" in split else list(classes)
    labels = split[columns].to_numpy().astype(int).tolist()
    for image, group, row in sorted(zip(split["image"], split["group"], labels, strict=True)):
        found.update(f"{image} {group} {row}\n".encode(errors="surrogateescape"))
    return found


def commit() -> str | None:
    """The checkout's commit, with ``+`` if files were changed; None outside a checkout."""
    try:
        asked = ["git", "describe", "--always", "--abbrev=12", "--dirty=+"]
        said = subprocess.check_output(asked, cwd=paths.ROOT, text=True, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.strip() or None
