"""Read a recipe's table ``[sweep]``, which has the command's options under the same names."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import msgspec

from helpers.errors import UserError
from helpers.recipe import tables
from helpers.recipe.recipe_file import RecipeFile
from helpers.runner import plans

Several = str | int | list[str | int]
"""One value, several with commas between as an option has them, or a list."""
CHOICES = get_type_hints(plans.Choices)
LISTS = [name for name, kind in CHOICES.items() if get_origin(kind) is Sequence]
NUMBERS = ("devices", "nnodes", "seeds")
SWEEP = tables.table("Sweep", CHOICES | dict.fromkeys(LISTS, Several) | {"name": str})


def read(file: RecipeFile) -> dict[str, Any]:
    """The choices, as ``plans.make_plan`` takes them, and ``name``; nothing where it has none."""
    with tables.located(file.path):
        if "recipe" in file.sweep:
            raise UserError("sweep.recipe: this file is the recipe: leave the key out")
        found: dict[str, Any] = msgspec.to_builtins(tables.checked(file.sweep, SWEEP))
    for key in found.keys() & {*LISTS}:
        value = found[key]
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        items = value if isinstance(value, list) else [value]
        found[key] = items if key in NUMBERS else [str(item) for item in items]
    if "data" in found:
        found["data"] = str(Path(os.path.expanduser(found["data"])))  # noqa: PTH111 (it never fails)
    return found
