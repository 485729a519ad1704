"""Load the custom code of a recipe: check it as text first, and run it only when it is needed.

A recipe names it as ``mine.py:net``. The file must be in the recipe's folder, also after links are
resolved. Its names and its digest are checked before any of it runs.
"""

import hashlib
import symtable
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from data_prep.errors import DataError, printable
from helpers.errors import UserError
from helpers.recipe.settings import Recipe

LARGEST = 2**20
"""Bytes."""
READER = "reader"


def check(said: str, folder: Path) -> tuple[Path, bytes]:
    """The file that ``said`` names and its bytes, from a recipe in ``folder``. Nothing of it runs.

    Raises:
        UserError: it is not in that folder, cannot be read, is not Python, or lacks the name.
    """
    file, colon, name = said.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise UserError(f"'{said}' is not file.py:name, such as \"mine.py:net\"")
    folder, path = folder.resolve(), (folder / file).resolve()
    if Path(file).is_absolute() or not path.is_relative_to(folder):
        raise UserError(f"'{file}' leads out of the recipe's folder {folder}: put the file there")
    if not path.is_file():
        raise UserError(f"'{file}': there is no such file in {folder}")
    try:
        with path.open("rb") as opened:
            data = opened.read(LARGEST + 1)
    except OSError as error:
        raise UserError(f"'{file}' cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        raise UserError(f"'{file}' is larger than 1 MiB, too large for such a file")
    try:
        names = _names(data, file)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f", line {line}" if line else ""
        why = getattr(error, "msg", None) or type(error).__name__
        raise UserError(f"'{file}'{where} is not valid Python: {why}") from None
    if name not in names:
        known = ", ".join(names) or "nothing"
        raise UserError(f"'{file}' has no '{name}' at its top level; it defines {known}")
    return path, data


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def load(recipe: Recipe, what: str) -> Any:
    """The object that a recipe names for ``what``, a framework's module or ``reader``.

    Print the file and its digest before it runs. The object is pickled together with its code,
    because other processes cannot import it.

    Raises:
        UserError: the file is another than when the recipe was read.
    """
    said = recipe.own[what]
    file, _, name = said.rpartition(":")
    folder = Path(recipe.beside)
    path, data = check(said, folder)
    if digest(data) != recipe.code[file]:
        raise UserError(f"{path}: has changed since the recipe {recipe.name} was read; start again")
    return getattr(_module(path, data), name)


@contextmanager
def report_errors(recipe: Recipe, what: str, called: str) -> Iterator[None]:
    """Turn any error of custom code inside the block into one line that names the file and line.

    Args:
        what: a framework's module, or ``reader``.
        called: how it was called, ``net(5)``.

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
        raise UserError(f"{path}: {called}{line}: {in_short(error)}") from error


def in_short(error: BaseException) -> str:
    """An error's kind and the first line of what it says."""
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return printable(f"{type(error).__name__}: {said}"[:300].removesuffix(": "))


@cache
def _module(path: Path, data: bytes) -> ModuleType:
    """The file as a module, of just these bytes; run once."""
    import cloudpickle  # not where a recipe is only looked at

    print(f"Own code: {path}, SHA-256 {digest(data)[:12]}", flush=True)
    module = ModuleType(f"own_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    cloudpickle.register_pickle_by_value(module)
    exec(compile(data, str(path), "exec"), module.__dict__)
    return module


def _names(data: bytes, file: str) -> list[str]:
    """What a module defines at its top level, also by an import or an assignment."""
    table = symtable.symtable(data, file, "exec")  # type: ignore[arg-type]  # it takes bytes too
    found = table.get_symbols()
    defined = [each for each in found if each.is_assigned() or each.is_imported()]
    return sorted(each.get_name() for each in defined)
