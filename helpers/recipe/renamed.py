"""Read recipes with old key and value names, and map them to the current names.

A file with old names is read as if it had the new ones, and one line lists the new names.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from data_prep.errors import printable
from helpers.errors import UserError
from helpers.recipe.toml_file import TomlFile

MOMENTUM = 0.9
"""What ``optimizer = "momentum"`` came with."""


@dataclass(frozen=True)
class Name:
    """A key's name now, what its old value is in its form, and what to say of that form."""

    new: str
    value: Callable[[Any], Any] = lambda value: value
    form: str = ""


def _schedule(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {"by": "gamma", "epochs": "milestones"}
    return {inner.get(key, key): each for key, each in value.items()}


def _gres(value: Any) -> Any:
    """``gpu:4`` of ``--gres=gpu:4`` or ``--gpus-per-node=4``."""
    if not isinstance(value, str):
        return value
    option, _, given = value.partition("=")
    if option == "--gpus-per-node":
        return ",".join(f"gpu:{each}" for each in given.split(","))
    return given if option == "--gres" else value


_BATCH = {
    "batch": Name("batch_size"),
    "scaling": Name("lr_scaling"),
    "drops": Name("lr_schedule", _schedule, " = {gamma, milestones}"),
}
_TARGETS = {"values": Name("quality_targets")}
_SIZE = {"resized": Name("image_size")}
KEYS: Mapping[str, Mapping[str, Name]] = {
    "data": {
        **_SIZE,
        "colour": Name("color_mode"),
        "shares": Name("split"),
        "valid": Name("val_fraction"),
    },
    "train": _BATCH,
    "target": _TARGETS,
    "demo": _SIZE | _BATCH | _TARGETS,
    "slurm": {
        "gpus": Name("gres", _gres, ' = "gpu:4"'),
        "memory": Name("mem"),
        "before": Name("setup"),
        "options": Name("sbatch_args"),
    },
}
"""By table and old key."""

VALUES: Mapping[str, Mapping[str, str]] = {
    "color_mode": {"grey": "grayscale"},
    "task": {"findings": "multilabel", "classes": "multiclass"},
    "optimizer": {"momentum": "sgd"},
    "weights": {"seeded": "random"},
}
"""By new key and old value."""

DIGESTS: Mapping[str, str] = {
    "d6c69c02ab55b9a6c3568eaa1bc0c4ffd32937155adacf6cd373fac4b4e6ceec": "chexnet",
    "c752ef7df72bae6e51c588640681837ad49d6acb8d33a8f26d2d94a18fd521bb": "demo",
    "5f154e7034468e110ba4ef8645bb51feb6217f159416488e7af4081a16f5efed": "resnet44-cifar10",
    "ea5fe17c47f3e9eba42c9e3ce4c518ccb36ac61857af7c2c146ddc2bce7f356b": "resnet50-imagenet",
}
"""SHA-256 digests of the built-in recipes with the old names; only the names differ."""

_reported: set[str] = set()


def in_new_words(file: TomlFile) -> TomlFile:
    """The file with its old names replaced by the new ones, which are printed once.

    Raises:
        UserError: it has a key by its old and by its new name.
    """
    content, said = dict(file.content), list[str]()
    renamed: dict[tuple[str, ...], tuple[str, ...]] = {}
    for table, given in file.content.items():
        if not isinstance(given, dict) or table == "sweep":
            continue
        found: dict[str, Any] = {}
        for key, value in given.items():
            name = KEYS.get(table, {}).get(key, Name(key))
            if name.new != key:
                if name.new in given:
                    raise UserError(
                        f"{file.where(table, key)}: '{key}' is the old name of '{name.new}', and "
                        f"both are given in [{table}]: keep '{name.new}'"
                    )
                renamed[table, name.new] = table, key
                said.append(f"{key} -> {name.new}{name.form}")
            found[name.new] = name.value(value)
            words = VALUES.get(name.new, {})
            if isinstance(value, str) and value in words:
                found[name.new] = words[value]
                said.append(f'{name.new} "{value}" -> "{words[value]}"')
            if (name.new, value) == ("optimizer", "momentum"):
                found["momentum"] = given.get("momentum", MOMENTUM)
                said[-1] += f" with momentum = {found['momentum']}"
        content[table] = found
    if said and str(file.path) not in _reported:
        _reported.add(str(file.path))
        names = ", ".join(dict.fromkeys(said))
        line = f"{file.path}: old names, which are still read; the new ones: {names}"
        print(printable(line), file=sys.stderr, flush=True)
    return replace(file, content=content, renamed=renamed)
