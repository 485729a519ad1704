"""``rosetta notebooks``, ``recipes`` and ``copy``: list notebooks and recipes, copy a notebook."""

import argparse
import json
import re
import shutil
from pathlib import Path

from helpers import paths, terminal
from helpers.commands.parser import Commands, command
from helpers.errors import UserError, naming
from helpers.recipe import RECIPES, lookup
from helpers.runner import selection
from helpers.terminal import say


def add(commands: Commands) -> None:
    command(commands, "notebooks", help="list all notebooks").set_defaults(run=_notebooks)
    command(commands, "recipes", help="list all included recipes").set_defaults(run=_recipes)
    parser = command(
        commands,
        "copy",
        help="copy a notebook, to change the copy and compare both",
        epilog="""\
example:
  rosetta copy PyTorch_MultiGPU PyTorch_no_flip    copy a notebook under notebooks/
  rosetta run --notebooks PyTorch_MultiGPU,PyTorch_no_flip
                                                   train both, after you have changed the copy
""",
    )
    parser.add_argument(
        "notebook",
        metavar="NOTEBOOK",
        help="the notebook to copy; 'rosetta notebooks' lists the names",
    )
    parser.add_argument("name", metavar="NAME", help="the name of the copy, without .ipynb")
    parser.set_defaults(run=_copy)


def _notebooks(given: argparse.Namespace) -> int:
    trains = selection.framework_notebooks()
    rows = []
    for path in _files():
        rows.append([path.stem, trains.get(path.stem, ("-", ""))[0], *_about(path)])
    say(terminal.table(["Notebook", "Framework", "Environment", "What it shows"], rows))
    return 0


def _recipes(given: argparse.Namespace) -> int:
    header = ["Recipe", "Network", "Images", "Task", "Epochs", "Batch size", "Optimizer"]
    rows = []
    for name in RECIPES:
        recipe = lookup(name)
        size = f"{recipe.crop} px, {recipe.reader}"
        numbers = (str(recipe.epochs), str(recipe.batch_size))
        momentum = f", momentum {recipe.momentum:g}" if recipe.momentum else ""
        optimizer = f"{recipe.optimizer}{momentum}"  # as a recipe's file has them
        rows.append([name, recipe.network, size, recipe.task, *numbers, optimizer])
    say(terminal.table(header, rows))
    return 0


def _copy(given: argparse.Namespace) -> int:
    source = paths.NOTEBOOKS / f"{given.notebook.removesuffix('.ipynb')}.ipynb"
    name = given.name.removesuffix(".ipynb")
    if source not in _files():
        raise UserError(f"no notebook '{given.notebook}': 'rosetta notebooks' lists them")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}", name):
        raise UserError(f"name '{given.name}': use letters, digits, dash and underscore")
    target = paths.NOTEBOOKS / f"{name}.ipynb"
    with naming(target):
        try:
            with target.open("xb") as file, source.open("rb") as original:
                shutil.copyfileobj(original, file)
        except FileExistsError:
            raise UserError(f"{target}: exists already; choose another name") from None
    place = f"{target.parent.name}/{target.name}"
    say(f"{place}: change it, then: rosetta run --notebooks {source.stem},{name}")
    return 0


def _files() -> list[Path]:
    return sorted(paths.NOTEBOOKS.glob("[!.]*.ipynb"))


def _about(path: Path) -> tuple[str, str]:
    """The notebook's environment, and its first heading."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        environment = str(content["metadata"]["kernelspec"]["name"])
        text = "".join(content["cells"][0]["source"])
    except (ValueError, LookupError, TypeError):
        return "-", "-"
    found = re.search(r"^# +(.+)$", text, re.MULTILINE)
    return environment, found[1] if found else "-"
