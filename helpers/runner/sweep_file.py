"""Read a sweep from a TOML file, which has the command's options under the same names.

A sweep is a separate file, or the table ``[sweep]`` of a recipe, which has the same keys except
``recipe``. Its keys are the fields of ``plans.Choices``, and ``name``.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Sweep:
    """What a file says; ``choices`` are fields of ``plans.Choices``, and ``name``."""

    path: Path
    choices: dict[str, Any]


def merged(given: Mapping[str, Any], sweeps: Sequence[Sweep]) -> dict[str, Any]:
    """The choices of the command line, then those of the first file, then of the second."""
    chosen = dict(given)
    for sweep in sweeps:
        which = {"notebooks", "frameworks"}  # either chooses what is run
        taken = which if which & chosen.keys() else set()
        chosen = {key: value for key, value in sweep.choices.items() if key not in taken} | chosen
    return chosen


@contextmanager
def located(sweeps: Sequence[Sweep], others: Collection[str] = ()) -> Iterator[None]:
    """Name the file of a choice that a plan cannot have, but of ``others``."""
    try:
        yield
    except plans.ChoiceError as error:
        files = [sweep for sweep in sweeps if error.option in sweep.choices]
        if error.option in others or not files:
            raise
        raise UserError(f"{files[0].path}: {error}") from None
    except UserError as error:
        raise UserError(f"{sweeps[0].path}: {error}" if sweeps else str(error)) from None


def read(path: str | Path) -> Sweep:
    """What a sweep's file says."""
    path = Path(os.path.expanduser(path))  # noqa: PTH111 (it never fails)
    return Sweep(path, _choices(path, tables.load(path, "sweep")[1]))


def of_recipe(file: RecipeFile) -> Sweep:
    """What a recipe's table ``[sweep]`` says; nothing where it has none."""
    if "recipe" in file.sweep:
        raise UserError(f"{file.path}: sweep.recipe: this file is the recipe: leave the key out")
    return Sweep(file.path, _choices(file.path, file.sweep))


def _choices(path: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """The values as ``plans.make_plan`` accepts them."""
    found: dict[str, Any] = msgspec.to_builtins(tables.checked(path, content, SWEEP))
    for key in found.keys() & {*LISTS}:
        value = found[key]
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        items = value if isinstance(value, list) else [value]
        found[key] = items if key in NUMBERS else [str(item) for item in items]
    if "data" in found:
        found["data"] = str(Path(os.path.expanduser(found["data"])))  # noqa: PTH111 (it never fails)
    return found
