"""Find recipes by name or by file."""

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from helpers import paths
from helpers.errors import UserError
from helpers.recipe import recipe_file
from helpers.recipe.recipe_file import RecipeFile
from helpers.recipe.settings import EXECUTIONS, PRECISIONS, Recipe

RECIPES: Mapping[str, Recipe] = {
    name: recipe_file.of_shipped(name).recipe for name in recipe_file.shipped()
}
"""Those that ship, by name, each in its full size."""


def full_name(name: str) -> str:
    """The same recipe for any process: a name as it is, a file by its whole path.

    From the current folder, or from the checkout's top, as data folders are.
    """
    if name in RECIPES or not name.endswith(".toml"):
        return name
    path = Path(os.path.expanduser(name))  # noqa: PTH111 (it never fails)
    return str((path if path.exists() else paths.ROOT / path).absolute())


def file_of(name: str) -> RecipeFile:
    """The recipe called ``name``, or in the file ``name``.

    Raises:
        UserError: there is none of that name, or the file has a mistake.
    """
    if name in RECIPES:
        return recipe_file.of_shipped(name)
    if name.endswith(".toml"):
        return recipe_file.read(full_name(name))
    known = ", ".join(RECIPES)
    raise UserError(
        f"unknown recipe '{name}': the recipes are {known} (or auto), or give a file: mine.toml"
    )


def lookup(name: str, *, demo: bool = False, **changes: Any) -> Recipe:
    """The recipe called ``name``, or in the file ``name``, with some fields changed.

    With ``demo`` as its table ``[demo]`` has it, if it has one.

    Raises:
        UserError: there is no such recipe, field or value of it, or the file has a mistake.
    """
    file = file_of(name)
    unknown = set(changes) - {field.name for field in fields(Recipe)}
    if unknown:
        raise UserError(f"unknown recipe field '{sorted(unknown)[0]}': see helpers/recipe")
    for what, known in (("precision", PRECISIONS), ("execution", EXECUTIONS)):
        if what in changes and changes[what] not in known:
            raise UserError(f"unknown {what} '{changes[what]}': it is one of {', '.join(known)}")
    return replace(file.demo if demo else file.recipe, **changes)
