"""Read a recipe's table ``[sweep]``, which has the command's options under the same names."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import msgspec

from data_prep.errors import DataError
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
    if "recipe" in file.sweep:
        raise UserError(f"{file.path}: sweep.recipe: this file is the recipe: leave the key out")
    found: dict[str, Any] = msgspec.to_builtins(tables.checked(file.path, file.sweep, SWEEP))
    for key in found.keys() & {*LISTS}:
        value = found[key]
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        items = value if isinstance(value, list) else [value]
        found[key] = items if key in NUMBERS else [str(item) for item in items]
    if "data" in found:
        found["data"] = str(Path(os.path.expanduser(found["data"])))  # noqa: PTH111 (it never fails)
    return found


@contextmanager
def located(file: RecipeFile, also: str = "") -> Iterator[None]:
    """Name the file of choices that a plan cannot have, and where they may come from ``also``."""
    try:
        yield
    except (UserError, DataError) as error:
        raise UserError(f"{file.path}{also}: {error}") from None
