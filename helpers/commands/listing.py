"""``rosetta notebooks`` and ``recipes``: list notebooks and recipes."""

import argparse
import json

from helpers import paths, terminal
from helpers.commands.parser import Commands, command
from helpers.recipe import RECIPES, lookup
from helpers.runner import selection
from helpers.terminal import say


def add(commands: Commands) -> None:
    command(commands, "notebooks", help="list all notebooks").set_defaults(run=_notebooks)
    command(commands, "recipes", help="list all included recipes").set_defaults(run=_recipes)


def _notebooks(given: argparse.Namespace) -> int:
    trains = selection.framework_notebooks()
    rows = []
    for path in sorted(paths.NOTEBOOKS.glob("[!.]*.ipynb")):
        content = json.loads(path.read_text(encoding="utf-8"))
        title = "".join(content["cells"][0]["source"]).partition("\n")[0].lstrip("# ")
        environment = content["metadata"]["kernelspec"]["name"]
        rows.append([path.stem, trains.get(path.stem, ("-", ""))[0], environment, title])
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
