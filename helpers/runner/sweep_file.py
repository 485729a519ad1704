"""Read a sweep from a TOML file, which has the command's options under the same names.

A sweep is a separate file, or the table ``[sweep]`` of a recipe, which has the same keys except
``recipe``. Every error message names the file, the line and a correct value.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from helpers.errors import UserError, unknown
from helpers.recipe import toml_file
from helpers.recipe.toml_file import TomlFile
from helpers.runner import plans
from helpers.terminal import say

EXAMPLES = {
    "frameworks": '["pytorch", "keras"]',
    "notebooks": '["PyTorch_MultiGPU"]',
    "devices": "[1, 2, 4, 8]",
    "nnodes": "[1, 2]",
    "precision": '["fp32"]',
    "seeds": "[0, 1, 2]",
    "gpus": "1",
    "repeats": "3",
    "recipe": '"chexnet"',
    "data": '"data/nih-264"',
    "epochs": "5",
    "batch_size": "64",
    "num_workers": "4",
    "warmup_epochs": "0.5",
    "launcher": '"mpiexec"',
    "cores_per_device": "4",
    "loader_cores": '"device"',
    "name": '"overnight"',
}
"""The keys, and what each may be given."""
TABLE = "sweep"
LISTS = [field.name for field in fields(plans.Choices) if isinstance(field.default, tuple)]
BATCH = "'batch' is two things: 'name' for the folder, 'batch_size' for images per device"
FORMER = {"nodes": "nnodes", "workers": "num_workers"}
"""Former keys, and their present names."""


@dataclass(frozen=True)
class Sweep:
    """What a file says; ``choices`` are fields of ``plans.Choices``, and ``name``.

    ``table`` is where in the file they stand: ``("sweep",)`` in a recipe.
    """

    file: TomlFile
    choices: dict[str, Any]
    table: tuple[str, ...] = ()

    def where(self, key: str) -> str:
        """``sweep.toml, line 3``: where the key stands; the file alone where it does not."""
        return self.file.where(*self.table, key)


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
    """Say where in these files a choice stands that a plan cannot have, but of ``others``."""
    try:
        yield
    except plans.ChoiceError as error:
        files = [sweep for sweep in sweeps if error.option in sweep.choices]
        if error.option in others or not files:
            raise
        raise UserError(f"{files[0].where(error.option)}: {error}") from None
    except UserError as error:
        raise UserError(f"{sweeps[0].file.path}: {error}" if sweeps else str(error)) from None


def read(path: str | Path) -> Sweep:
    """What a sweep's file says."""
    file = toml_file.load(path, "sweep", EXAMPLES, 'recipe = "demo" or devices = [1, 2]')
    if not file.content:
        raise UserError(f"{file.path}: nothing in it; a sweep is lines like 'devices = [1, 2]'")
    return Sweep(file, _choices(file, (), file.content))


def of_recipe(file: TomlFile) -> Sweep:
    """What a recipe's table ``[sweep]`` says; nothing where it has none."""
    found = file.content.get(TABLE, {})
    if "recipe" in found:
        raise UserError(f"{file.where(TABLE, 'recipe')}: this file is the recipe: leave that out")
    return Sweep(file, _choices(file, (TABLE,), found), (TABLE,))


def _choices(file: TomlFile, table: tuple[str, ...], found: Mapping[str, Any]) -> dict[str, Any]:
    choices = {}
    for key, value in found.items():
        now = FORMER.get(key, key)
        if now != key:
            where = file.where(*table, key)
            if now in found:
                raise UserError(f"{where}: '{key}' is the old name of '{now}': give one of them")
            if key == "workers" and value not in ("auto", "default"):
                raise UserError(
                    f"{where}: 'workers' was for all devices together; give 'num_workers', for "
                    "each device"
                )
            _announce(f"{where}: the old name '{key}' is still read; the new one: {now}")
        choices[now] = _value(file, (*table, key), value, now)
    return choices


@cache
def _announce(line: str) -> None:
    """Print a line once, although a command reads its recipe's sweep several times."""
    say(line, error=True)


def _value(file: TomlFile, keys: tuple[str, ...], value: Any, key: str) -> Any:
    """What ``key`` is given, which stands as the last of ``keys`` in the file."""
    where = file.where(*keys)
    if key == "batch":
        raise UserError(f"{where}: {BATCH}")
    if key not in EXAMPLES:
        raise UserError(f"{where}: {unknown('key', key, EXAMPLES)}")
    return _list(where, key, value) if key in LISTS else _one(where, key, value)


def _list(where: str, key: str, value: Any) -> list[Any]:
    """A list, also where only one is given, or several with commas as on the command line."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    items = value if isinstance(value, list) else [value]
    if not items or not all(_is_plain(item) for item in items):
        raise UserError(
            f"{where}: '{key}' takes a list of names or numbers, such as {EXAMPLES[key]}"
        )
    return items if key in ("devices", "nnodes", "seeds") else [str(item) for item in items]


def _one(where: str, key: str, value: Any) -> Any:
    if not _is_plain(value) and not (key == "warmup_epochs" and isinstance(value, float)):
        raise UserError(f"{where}: '{key}' takes one value, such as {EXAMPLES[key]}")
    if key == "data":
        return str(Path(os.path.expanduser(str(value))))  # noqa: PTH111 (it never fails)
    return str(value) if key in ("recipe", "name", "gpus", "launcher", "loader_cores") else value


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)
