"""Read a recipe from its TOML file, which is treated as untrusted.

Nothing in the file is run. Every mistake gives one line: the file, the line in it, the error and
the fix.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from helpers import paths
from helpers.errors import UserError, unknown
from helpers.recipe import custom_code, key_types, toml_file
from helpers.recipe.keys import (
    DATA,
    EXAMPLES,
    FRAMEWORKS,
    NETWORKS,
    OPTIONS,
    READERS,
    TABLES,
)
from helpers.recipe.settings import MULTILABEL, ON_DEVICE, TASKS, Recipe
from helpers.recipe.toml_file import TomlFile

FOLDER = paths.ROOT / "recipes"
"""The recipes that ship: their files' names are theirs."""

SWEEP = "sweep"
NOT_TRAINED = ("slurm", SWEEP)
"""Tables that do not change the training itself: they say where and how often it runs. A job that
ran out of time therefore resumes after the file asks for more time."""
Tables = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class RecipeFile:
    """A file's recipe, the one that its table ``[demo]`` makes of it, and its other tables.

    What ``[sweep]`` says is for ``helpers.runner.sweep_file`` to check.
    """

    file: TomlFile
    recipe: Recipe
    demo: Recipe
    slurm: dict[str, Any]


def shipped() -> tuple[str, ...]:
    """Names of the recipes that ship."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def read(path: str | Path) -> RecipeFile:
    """The recipe in the file at ``path``.

    Raises:
        UserError: it cannot be read, is not TOML, or says what no recipe may.
    """
    file, tables = _tables(path)
    slurm = tables.get("slurm", {})
    demo = {name: dict(table) for name, table in tables.items()}
    for key, value in tables.get("demo", {}).items():
        home = next(name for name in ("data", "model", "train", "target") if key in TABLES[name])
        demo.setdefault(home, {})[key] = value
    recipe = _recipe(file, tables)
    small = replace(_recipe(file, demo), demo=True) if "demo" in tables else recipe
    return RecipeFile(file, recipe, small, slurm)


@cache
def of_shipped(name: str) -> RecipeFile:
    """The recipe of that name; read once."""
    return read(FOLDER / f"{name}.toml")


def _tables(path: str | Path) -> tuple[TomlFile, Tables]:
    """A file, and its tables upon those of the recipe that it begins with; every key is checked."""
    file = toml_file.load(path, "recipe", EXAMPLES, "[train], and below it epochs = 5")
    _check_name(file.path)
    for number, line in enumerate(file.text.split("\n"), start=1):
        if not line.isprintable():  # the whole text is recorded, and shown again
            raise UserError(
                f"{file.path}, line {number}: a tab or another invisible character: remove it"
            )
    tables: Tables = {}
    known = ("recipe", *TABLES, SWEEP)
    for name, value in file.content.items():
        where = file.where(name)
        if name not in known:
            homes = [table for table, keys in TABLES.items() if name in keys]
            hint = f": it belongs under [{homes[0]}]" if homes else ""
            said = f"unknown key '{name}'{hint}" if homes else unknown("key", name, known)
            raise UserError(f"{where}: {said}")
        if name == "recipe":
            tables = _begun_with(file, value)
        elif not isinstance(value, dict):
            raise UserError(f"{where}: '{name}' is a table: write [{name}], and its keys below it")
    if not file.content:
        raise UserError(
            f"{file.path}: the file is empty; a recipe has tables such as [model], [train]"
        )
    for name in TABLES:
        shown = DATA if name == "data" else None  # each reader has other options
        given = {
            key: key_types.check(file, (name,), key, value, TABLES[name], shown)
            for key, value in file.content.get(name, {}).items()
        }
        if name == "model":
            tables["model"] = _one_way(file, tables.get("model", {}), given)
        elif name == "data" and given.get("reader", _reader(tables)) != _reader(tables):
            tables["data"] = dict(given)  # another reader has other options, and other images
        else:
            tables[name] = tables.get(name, {}) | given
            if "optimizer" in given and "momentum" not in given:
                tables[name].pop("momentum", None)  # that of the recipe that it begins with
    _check_optimizer(file, tables)
    if not tables["demo"] and "demo" not in file.content:
        del tables["demo"]
    return file, tables


def _check_name(path: Path) -> None:
    """Raises UserError for a name that another recipe has, or that no table could show."""
    if path.stem in shipped() and path.resolve().parent != FOLDER:
        raise UserError(
            f"{path}: '{path.stem}' is the name of a built-in recipe: give yours another name"
        )
    if not path.stem.isprintable():
        raise UserError(f"{path}: its name has invisible characters: rename it")


def _reader(tables: Tables) -> str:
    return str(tables.get("data", {}).get("reader", "nih"))


def _begun_with(file: TomlFile, name: Any) -> Tables:
    if not isinstance(name, str) or name not in shipped():
        raise UserError(
            f"{file.where('recipe')}: {name!r} is not a built-in recipe: begin with one of "
            f"{', '.join(shipped())}, or with none"
        )
    base = FOLDER / f"{name}.toml"
    if base == file.path.resolve():
        raise UserError(f"{file.where('recipe')}: the recipe begins with itself")
    return _tables(base)[1]


def _one_way(file: TomlFile, before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """``[model]``: a built-in or a custom network; the one that is given replaces the other."""
    own = [key for key in given if key in FRAMEWORKS]
    if own and "network" in given:
        raise UserError(
            f"{file.where('model', own[0])}: [model] has both 'network' and '{own[0]}': "
            "name a built-in network, or a custom one for each framework"
        )
    replaced: tuple[str, ...] = FRAMEWORKS if "network" in given else ()
    if own:
        replaced = ("network", "weights", *FRAMEWORKS)
    return {key: value for key, value in before.items() if key not in replaced} | dict(given)


def _check_optimizer(file: TomlFile, tables: Tables) -> None:
    """Raises UserError for a momentum that nothing would use."""
    optimizer = tables.get("train", {}).get("optimizer", "adam")
    if "momentum" in file.content.get("train", {}) and optimizer != "sgd":
        raise UserError(
            f"{file.where('train', 'momentum')}: 'momentum' goes with optimizer = \"sgd\" "
            f'only, and this recipe has "{optimizer}"'
        )


def _recipe(file: TomlFile, tables: Tables) -> Recipe:
    data, model = dict(tables.get("data", {})), dict(tables.get("model", {}))
    train, target = dict(tables.get("train", {})), tables.get("target", {})
    folder = file.path.resolve().parent
    own = {key: model.pop(key) for key in FRAMEWORKS if key in model}
    network = "own" if own else model.get("network")
    if network is None:
        raise UserError(
            f'{file.path}: no network: under [model] give network = "{NETWORKS[0]}" (or '
            f'{", ".join(NETWORKS[1:])}), or pytorch = "mine.py:net"'
        )
    reader = data.get("reader", "nih")
    if ":" in reader:
        own[custom_code.READER], reader = reader, "own"
    elif reader not in READERS:
        raise UserError(
            f"{file.where('data', 'reader')}: unknown reader '{reader}': the readers are "
            f"{', '.join(READERS)}, or a custom one as file.py:name"
        )
    code = {}
    for what, said in own.items():
        where = ("data", "reader") if what == custom_code.READER else ("model", what)
        try:
            code[said.rpartition(":")[0]] = custom_code.digest(said, folder)
        except UserError as error:
            raise UserError(f"{file.where(*where)}: {error}") from None
    options = _options(file, reader, data, folder)
    schedule = train.pop("lr_schedule", None)
    task = train.get("task", MULTILABEL)
    return Recipe(
        file.path.stem,
        **_sizes(file, reader, data),
        **train,
        weights=model.get("weights", "random" if network == "own" else "auto"),
        lr_gamma=schedule.gamma if schedule else 1.0,
        lr_milestones=tuple(schedule.milestones) if schedule else (),
        **_target(file, task, target),
        network=network,
        reader=reader,
        folder=_folder(data.get("folder", "auto"), folder),
        options=options,
        color_mode=data.get("color_mode", "grayscale" if reader == "nih" else "rgb"),
        loader_cores=data.get("loader_cores", ON_DEVICE),
        own=own,
        code=code,
        beside=str(folder) if own else "",
        text=file.text,
        sha256=hashlib.sha256(file.without(*NOT_TRAINED).encode()).hexdigest(),
    )


def _options(file: TomlFile, reader: str, data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The reader's own keys of ``[data]``."""
    found = {key: value for key, value in data.items() if key in OPTIONS}
    for key in found:
        if key not in READERS.get(reader, ()):
            takes = ", ".join((*DATA, *READERS.get(reader, ())))
            raise UserError(
                f"{file.where('data', key)}: the reader {reader} has no option '{key}'; "
                f"[data] accepts {takes} with it"
            )
    if isinstance(found.get("table"), str):
        found["table"] = str(folder / found["table"])
    return found


def _sizes(file: TomlFile, reader: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Images and crop in pixels; without such keys the article's, or the images' own size."""
    if "crop" in data and "image_size" not in data:
        raise UserError(
            f"{file.where('data', 'crop')}: 'crop' needs 'image_size', the size "
            "of the images that it is taken from"
        )
    if "image_size" not in data:
        return {} if reader == "nih" else {"image_size": 0, "crop": 0}
    image_size, crop = data["image_size"], data.get("crop", data["image_size"])
    if crop > image_size:
        raise UserError(
            f"{file.where('data', 'crop')}: a crop of {crop} px does not fit into {image_size} px"
        )
    return {"image_size": image_size, "crop": crop}


def _target(file: TomlFile, task: str, target: Mapping[str, Any]) -> dict[str, Any]:
    metric = target.get("metric", TASKS[task][0])
    if metric not in TASKS[task]:
        raise UserError(
            f"{file.where('target', 'metric')}: '{metric}' does not go with "
            f'task = "{task}": give {" or ".join(TASKS[task])}'
        )
    return {"metric": metric, "quality_targets": tuple(target.get("quality_targets", ()))}


def _folder(said: str, beside: Path) -> str:
    """``auto``, or a folder from the recipe's own."""
    return said if said == "auto" else str(beside / os.path.expanduser(said))  # noqa: PTH111 (it never fails)
