"""Read a sweep from a TOML file, which has the command's options under the same names.

A sweep is a separate file, or the table ``[sweep]`` of a recipe, which has the same keys except
``recipe``. Every error message names the file, the line and a correct value.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from helpers.errors import UserError
from helpers.recipe import toml_file
from helpers.recipe.key_types import check, described, example
from helpers.recipe.toml_file import TomlFile
from helpers.runner import plans

One = str | int


def _one(example: str, what: str = "one value", kind: Any = One) -> Any:
    return described(kind, what, example)


def _several(example: str) -> Any:
    many = Annotated[list[One], Meta(min_length=1)]
    return _one(example, "a list of names or numbers", One | many)


LISTS = {
    "frameworks": _several('["pytorch", "keras"]'),
    "notebooks": _several('["PyTorch_MultiGPU"]'),
    "devices": _several("[1, 2, 4, 8]"),
    "nnodes": _several("[1, 2]"),
    "precision": _several('["fp32"]'),
    "execution": _several('["eager", "compiled"]'),
    "seeds": _several("[0, 1, 2]"),
}
KEYS = LISTS | {
    "repeats": _one("3"),
    "recipe": _one('"chexnet"'),
    "data": _one('"data/nih-264"'),
    "epochs": _one("5"),
    "batch_size": _one("64"),
    "num_workers": _one("4"),
    "warmup_epochs": _one("0.5", "a number of epochs", One | float),
    "launcher": _one('"mpiexec"'),
    "cores_per_device": _one("4"),
    "loader_cores": _one('"device"'),
    "name": _one('"overnight"'),
}
"""The keys, and the type of each; what a run then accepts of it says ``plans.make_plan``."""
EXAMPLES = {key: example(kind) for key, kind in KEYS.items()}
TABLE = "sweep"


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
        raise UserError(
            f"{file.path}: the file is empty; a sweep has lines such as 'devices = [1, 2]'"
        )
    return Sweep(file, _choices(file, (), file.content))


def of_recipe(file: TomlFile) -> Sweep:
    """What a recipe's table ``[sweep]`` says; nothing where it has none."""
    found = file.content.get(TABLE, {})
    if "recipe" in found:
        raise UserError(
            f"{file.where(TABLE, 'recipe')}: this file is the recipe already: leave the key out"
        )
    return Sweep(file, _choices(file, (TABLE,), found), (TABLE,))


def _choices(file: TomlFile, table: tuple[str, ...], found: Mapping[str, Any]) -> dict[str, Any]:
    choices = {}
    for key, value in found.items():
        if key in LISTS and isinstance(value, str):  # several with commas, as an option has them
            value = [part.strip() for part in value.split(",") if part.strip()]
        choices[key] = _value(key, check(file, table, key, value, KEYS))
    return choices


def _value(key: str, value: Any) -> Any:
    """A value as ``plans.make_plan`` accepts it."""
    if key in LISTS:
        items = value if isinstance(value, list) else [value]
        return items if key in ("devices", "nnodes", "seeds") else [str(item) for item in items]
    if key == "data":
        return str(Path(os.path.expanduser(str(value))))  # noqa: PTH111 (it never fails)
    return str(value) if key in ("recipe", "name", "launcher", "loader_cores") else value
