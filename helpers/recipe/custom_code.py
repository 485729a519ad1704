"""Import the custom code of a recipe, which names it as ``mine.py:net``."""

import hashlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from data_prep.errors import DataError
from helpers.errors import UserError, in_a_line
from helpers.recipe.settings import Recipe

READER = "reader"


def digest(said: str, folder: Path) -> str:
    """The SHA-256 of the file in ``folder`` that ``said`` names; nothing of it runs.

    Raises:
        UserError: it does not name a file and a function, or there is no such file.
    """
    file, colon, name = said.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise UserError(f"'{said}' is not file.py:name, such as \"mine.py:net\"")
    if not (folder / file).is_file():
        raise UserError(f"'{file}': there is no such file in {folder}")
    return hashlib.sha256((folder / file).read_bytes()).hexdigest()


def load(recipe: Recipe, what: str) -> Any:
    """The object that a recipe names for ``what``, a framework's module or ``reader``.

    It is pickled with its code, because other processes cannot import it.
    """
    file, _, name = recipe.own[what].rpartition(":")
    return getattr(_module((Path(recipe.beside) / file).resolve(), recipe.code[file]), name)


@contextmanager
def report_errors(recipe: Recipe, what: str, called: str) -> Iterator[None]:
    """Turn an error of custom code, ``called`` as ``net(5)``, into a line with its file and line.

    Raises:
        UserError: in place of whatever was raised inside.
    """
    path = (Path(recipe.beside) / recipe.own[what].rpartition(":")[0]).resolve()
    try:
        yield
    except (UserError, DataError):
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        line = f", line {lines[-1]}" if lines else ""
        raise UserError(f"{path}: {called}{line}: {in_a_line(error)}") from error


@cache
def _module(path: Path, digest: str) -> ModuleType:
    """The file as a module, run once for each digest, which is printed before."""
    import cloudpickle  # not where a recipe is only looked at

    print(f"Own code: {path}, SHA-256 {digest[:12]}", flush=True)
    module = ModuleType(f"own_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    cloudpickle.register_pickle_by_value(module)
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module
