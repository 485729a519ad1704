"""What makes two runs the same run: recipe, data, and the code that trained them."""

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pandas as pd

from helpers import paths

PACKAGES = ("helpers", "data_prep")
"""What the notebooks' training depends on; the monitor only looks on."""


@cache
def code(notebook: str) -> str:
    """SHA-256 of a notebook's code, parameters apart, and of the packages it imports."""
    found = hashlib.sha256()
    path = paths.NOTEBOOKS / f"{notebook}.ipynb"
    if path.exists():
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            is_code = cell["cell_type"] == "code"
            if is_code and "parameters" not in cell["metadata"].get("tags", []):
                found.update("".join(cell["source"]).encode())
    for package in PACKAGES:
        for module in sorted((paths.ROOT / package).rglob("*.py")):
            found.update(module.relative_to(paths.ROOT).as_posix().encode())
            found.update(module.read_bytes())
    return found.hexdigest()


def images(part: pd.DataFrame, classes: Sequence[str]) -> Any:
    """A SHA-256, to be updated, over names, groups and labels of images, in whatever order.

    ``part`` is one of ``image_data.Data``'s tables, ``classes`` its names of classes or findings.
    """
    found = hashlib.sha256(f"{tuple(classes)}\n".encode())
    columns = "class" if "class" in part else list(classes)
    labels = part[columns].to_numpy().astype(int).tolist()
    for image, group, row in sorted(zip(part["image"], part["group"], labels, strict=True)):
        found.update(f"{image} {group} {row}\n".encode(errors="surrogateescape"))
    return found


def of(content: Mapping[str, Any]) -> dict[str, str]:
    """Digests of a record's recipe, data and code, as far as it has them.

    The recipe's has that of its file and of own code in it, which are among its fields.
    """
    recipe = json.dumps(content["recipe"], sort_keys=True).encode()
    found = {
        "recipe": hashlib.sha256(recipe).hexdigest(),
        "data": content.get("data", {}).get("sha256"),
        "code": content["run"].get("code"),
    }
    return {what: digest for what, digest in found.items() if digest is not None}


def commit() -> str | None:
    """The checkout's commit, with ``+`` where files were changed; None outside a checkout."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+"],
            cwd=paths.ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip() or None
