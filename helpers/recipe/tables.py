"""The tables of a recipe's file, and of a sweep's, as types that msgspec checks.

Type, range and default of a setting are declared once, as a field of :class:`Recipe`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from data_prep.errors import DataError
from helpers.errors import UserError
from helpers.frameworks import NOTEBOOKS
from helpers.recipe.settings import Recipe

Kind = TypeVar("Kind")
FRAMEWORKS = tuple(NOTEBOOKS)
"""Modules of ``helpers.frameworks`` that accept a custom network."""
COMMON_OPTIONS = ("uncertain", "missing", "split", "val_fraction")
READERS: dict[str, tuple[str, ...]] = {
    "nih": COMMON_OPTIONS,
    "table": (*COMMON_OPTIONS, "table"),
    "imagefolder": (*COMMON_OPTIONS, "group", "class_pattern", "exclude"),
    "cifar10": COMMON_OPTIONS,
}
"""What ``data_prep`` can read, and the further keys of ``[data]`` that each takes."""

Text = Annotated[str, Meta(min_length=1)]
Texts = Annotated[list[Text], Meta(min_length=1)]

OPTIONS: dict[str, Any] = {
    "uncertain": Literal["zero", "one", "ignore"],
    "missing": Literal["zero", "one", "ignore"],
    "split": list[Annotated[float, Meta(ge=0, le=1)]],
    "val_fraction": Annotated[float, Meta(gt=0, le=1)],
    "table": str | dict[str, Any],  # the reader checks what is in it
    "group": Text,
    "class_pattern": Text,
    "exclude": Texts,
}
"""Keys of ``[data]`` that only some readers take."""

SLURM: Any = dict[
    Annotated[str, Meta(pattern=r"^[a-z][a-z-]*\Z")],
    bool | int | Annotated[str, Meta(pattern=r"^[!-~]+\Z")] | Texts,
]
"""A job's options as sbatch calls them, without their two dashes, and ``setup``, shell lines."""

_TYPES = get_type_hints(Recipe, include_extras=True)
_TRAIN = (
    *("task", "epochs", "batch_size", "execution", "optimizer", "learning_rate", "lr_scaling"),
    *("warmup_epochs", "weight_decay", "momentum", "lr_gamma", "lr_milestones"),
)
_DEMO = (
    *("folder", "image_size", "crop", "weights", "quality_targets"),
    *(key for key in _TRAIN if key not in ("task", "optimizer")),
)
"""What a machine without a GPU may take another value of: neither what is trained, nor the rule."""


def table(name: str, keys: Mapping[str, Any]) -> Any:
    """A type with these keys, each of which a file may leave out."""
    fields = [(key, kind | UnsetType, UNSET) for key, kind in keys.items()]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True)


def _of_recipe(name: str, *keys: str, **more: Any) -> Any:
    return table(name, {key: _TYPES[key] for key in keys} | more)


_DATA = ("folder", "image_size", "crop", "color_mode")
TABLES: dict[str, Any] = {
    "data": _of_recipe("Data", *_DATA, reader=Text, **OPTIONS),
    "model": _of_recipe("Model", "network", "weights", **dict.fromkeys(FRAMEWORKS, Text)),
    "train": _of_recipe("Train", *_TRAIN),
    "target": _of_recipe("Target", "metric", "quality_targets"),
    "demo": _of_recipe("Demo", *_DEMO),
    "slurm": SLURM,
}
FILE = table("File", TABLES | {"recipe": str, "sweep": dict[str, Any]})


@contextmanager
def located(where: Path | str) -> Iterator[None]:
    """Name the file that a mistake is in."""
    try:
        yield
    except (UserError, DataError) as error:
        raise UserError(f"{where}: {error}") from None


def checked(content: Any, kind: type[Kind]) -> Kind:
    """The content of a file as a type has it.

    Raises:
        UserError: a key is unknown, or a value is of another type or out of range.
    """
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at `$")
        at = where.strip("`.")
        raise UserError(f"{at + ': ' if at else ''}{said}") from None
