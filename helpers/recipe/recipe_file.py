"""Find recipes by name, and read one from its TOML file. Nothing in the file is run."""

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from helpers import paths
from helpers.errors import UserError
from helpers.recipe import custom_code, tables
from helpers.recipe.settings import NETWORKS, TASKS, Recipe
from helpers.recipe.tables import FRAMEWORKS, READERS, TABLES

FOLDER = paths.ROOT / "recipes"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
"""The recipes that ship: their files' names are theirs."""
TRAINED = ("data", "model", "train", "target")
"""Tables that decide the training; the others may change before a job is resumed."""
Tables = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class RecipeFile:
    """A file's recipe, the one that its table ``[demo]`` makes of it, and its other tables."""

    path: Path
    recipe: Recipe
    demo: Recipe
    slurm: dict[str, Any]
    sweep: dict[str, Any]
    """As the file has it: ``helpers.runner.sweep_file`` checks it."""


def full_name(name: str) -> str:
    """The same recipe for any process: a name as it is, a file by its whole path.

    From the current folder, or from the checkout's top, as data folders are.
    """
    if not name.endswith(".toml"):
        return name
    path = Path(os.path.expanduser(name))  # noqa: PTH111 (it never fails)
    return str((path if path.exists() else paths.ROOT / path).absolute())


def file_of(name: str) -> RecipeFile:
    """The recipe called ``name``, or in the file ``name``.

    Raises:
        UserError: there is none of that name, or the file has a mistake.
    """
    if name in SHIPPED:
        return SHIPPED[name]
    if name.endswith(".toml"):
        return read(Path(full_name(name)))
    raise UserError(
        f"unknown recipe '{name}': the recipes are {', '.join(NAMES)} (or auto), or give a file: "
        "mine.toml"
    )


def lookup(name: str, *, demo: bool = False, **changes: Any) -> Recipe:
    """The recipe called ``name``, or in the file ``name``, with ``[demo]`` and fields changed.

    Raises:
        UserError: there is no such recipe or value of a field, or the file has a mistake.
    """
    file = file_of(name)
    changed = replace(file.demo if demo else file.recipe, **changes)
    return tables.checked(asdict(changed), Recipe)


def read(path: Path) -> RecipeFile:
    """The recipe in the file at ``path``.

    Raises:
        UserError: it cannot be read, is not TOML, or says what no recipe may.
    """
    with tables.located(path):
        if path.stem in NAMES and path.resolve().parent != FOLDER:
            raise UserError(f"'{path.stem}' names a built-in recipe: give yours another name")
        found = _tables(path)
        recipe = demo = _recipe(path, found)
        if "demo" in found:
            homes = {key: name for name in TRAINED for key in TABLES[name].__struct_fields__}
            small = {name: dict(table) for name, table in found.items()}
            for key, value in found["demo"].items():
                small.setdefault(homes[key], {})[key] = value
            demo = replace(_recipe(path, small), demo=True, sha256=recipe.sha256)
    return RecipeFile(path, recipe, demo, found.get("slurm", {}), found.get("sweep", {}))


def _tables(path: Path) -> Tables:
    """A file's tables upon those of the recipe that it begins with."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UserError(f"the recipe cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"not TOML, as a recipe is: {error}") from None
    found: dict[str, Any] = msgspec.to_builtins(tables.checked(content, tables.FILE))
    if (name := found.pop("recipe", None)) is None:
        return found
    if name not in NAMES or path.resolve() == FOLDER / f"{name}.toml":
        raise UserError(
            f"recipe: '{name}' is not a built-in recipe: begin with one of {', '.join(NAMES)}, "
            "or with none"
        )
    begun = _tables(FOLDER / f"{name}.toml")
    begun.pop("sweep", None)
    return found | {each: _upon(each, begun[each], found.get(each, {})) for each in begun}


def _upon(name: str, before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A table upon that of the built-in recipe that the file begins with."""
    kept = dict(before)
    if name == "data" and given.get("reader", before["reader"]) != before["reader"]:
        kept = {}  # another reader has other options, and other images
    elif name == "train" and "optimizer" in given:
        kept.pop("momentum", None)
    elif name == "model" and given.keys() & set(FRAMEWORKS):
        kept = {}
    return kept | dict(given)


def _recipe(path: Path, found: Tables) -> Recipe:
    data, model, train, target = (dict(found.get(name, {})) for name in TRAINED)
    folder = path.resolve().parent
    own = {key: model.pop(key) for key in FRAMEWORKS if key in model}
    if bool(own) == (model.get("network", "own") != "own"):
        raise UserError(
            f'model: give either network = "{NETWORKS[0]}" (or {", ".join(NETWORKS[1:])}) '
            'or a network for each framework, such as pytorch = "mine.py:net"'
        )
    reader = data.pop("reader", "nih")
    if ":" in reader:
        own[custom_code.READER], reader = reader, "own"
    elif reader not in READERS:
        raise UserError(
            f"data.reader: unknown reader '{reader}': the readers are {', '.join(READERS)}, or a "
            "custom one as file.py:name"
        )
    options = {key: data.pop(key) for key in tables.OPTIONS if key in data}
    if wrong := [key for key in options if key not in READERS.get(reader, ())]:
        raise UserError(f"data.{wrong[0]}: the reader {reader} has no such option")
    if isinstance(options.get("table"), str):
        options["table"] = str(folder / options["table"])
    if data.get("folder", "auto") != "auto":
        data["folder"] = str(folder / os.path.expanduser(data["folder"]))  # noqa: PTH111 (never fails)
    if "momentum" in train and train.get("optimizer", "adam") != "sgd":
        raise UserError('train.momentum: it goes with optimizer = "sgd" only')
    metrics = TASKS[train.get("task", Recipe.task)]
    if target.setdefault("metric", metrics[0]) not in metrics:
        said = f"'{target['metric']}' does not go with the task: give {' or '.join(metrics)}"
        raise UserError(f"target.metric: {said}")
    if own.keys() - {custom_code.READER}:
        model = {"network": "own", "weights": model.get("weights", "random")}
    data.setdefault("color_mode", "grayscale" if reader == "nih" else "rgb")
    if "image_size" in data:
        size, crop = data["image_size"], data.setdefault("crop", data["image_size"])
        if crop > size:
            raise UserError(f"data.crop: {crop} px do not fit into {size} px")
    elif "crop" in data:
        raise UserError("data.crop: it needs image_size, that of the images")
    elif reader != "nih":  # the images' own size, whatever that is
        data |= {"image_size": 0, "crop": 0}
    decides = {name: found.get(name, {}) for name in (*TRAINED, "demo")}
    settings = data | model | train | target
    settings |= {
        "name": path.stem,
        "reader": reader,
        "options": options,
        "own": own,
        "code": {
            said.rpartition(":")[0]: custom_code.digest(said, folder) for said in own.values()
        },
        "beside": str(folder) if own else "",
        "sha256": hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest(),
    }
    return tables.checked(settings, Recipe)


SHIPPED: Mapping[str, RecipeFile] = {name: read(FOLDER / f"{name}.toml") for name in NAMES}
RECIPES: Mapping[str, Recipe] = {name: file.recipe for name, file in SHIPPED.items()}
"""Those that ship, by name, each in its full size."""
