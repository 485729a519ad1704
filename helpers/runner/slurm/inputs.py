"""Compare the files of a job on each node: the recipe, its custom code and the images."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from data_prep.errors import DataError
from helpers.errors import UserError, refusal
from helpers.recipe import Recipe, lookup
from helpers.training import image_folders

Row = tuple[str, bool, str]
"""What was asked, whether it is right, and what was found."""


def seen(recipe: str, data: str, *, demo: bool) -> dict[str, Any]:
    """On a node: ``digests`` of the recipe's files, or why it is ``unread``; ``images`` likewise.

    ``data`` is the folder chosen instead of the recipe's, or ``auto``; ``demo`` says whether the
    recipe's table ``[demo]`` holds here.
    """
    found: dict[str, Any] = {"digests": {}, "unread": "", "images": "", "lacking": ""}
    what = "unread"
    try:
        chosen = lookup(recipe, demo=demo)
        found["digests"] = chosen.digests()
        what = "lacking"
        found["images"] = _images(chosen, data)
    except OSError as error:
        found[what] = refusal(error)
    except (UserError, DataError) as error:
        found[what] = str(error)
    return found


def _images(recipe: Recipe, data: str) -> str:
    """The images' source, with a size or digest that identifies its content."""
    folder = image_folders.data_folder(recipe, recipe.folder if data == "auto" else data)
    if folder is None:
        return "its own code brings them"
    if not folder.exists():
        return f"{folder}, to be generated"
    if folder.is_file():
        return f"{folder}, {folder.stat().st_size} bytes"
    names = sorted(path.name for path in folder.iterdir())
    if not names:
        raise UserError(f"{folder} is empty")  # as where nothing was mounted
    digest = hashlib.sha256("\n".join(names).encode(errors="surrogateescape")).hexdigest()
    return f"{folder}, SHA-256 of its names {digest[:12]}"


def judged(found: Sequence[Mapping[str, Any]], recipe: str, wanted: Mapping[str, str]) -> list[Row]:
    """The rows about them, from what each ``node`` has ``seen``.

    ``recipe`` is how the file is called, ``wanted`` the digests by file, as they are here.
    """
    wrong, lacking = [], []
    images: dict[str, list[str]] = {}
    for each in found:
        node, its = each["node"], each["seen"]
        if its["unread"]:
            wrong.append(f"{node}: {its['unread']}")
        elif other := sorted(name for name in wanted if its["digests"].get(name) != wanted[name]):
            wrong.append(f"{node}: {', '.join(other)} is another than here")
        if its["lacking"]:
            lacking.append(f"{node}: {its['lacking']}")
        elif its["images"]:
            images.setdefault(its["images"], []).append(node)
    if len(images) > 1:
        lacking += [f"{', '.join(nodes)}: {said}" for said, nodes in images.items()]
    files = f"on each node: {', '.join(sorted(wanted))}"
    return [
        (f"{recipe} is read", not wrong, "; ".join(wrong) or files),
        ("its images", not lacking, "; ".join(lacking or list(images) or ["not known"])),
    ]
