"""Find the notebook that runs here, the cells of its file, and the cells that IPython has run."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helpers import paths
from helpers.errors import UserError
from helpers.frameworks import ROWS

VARIABLE = "ROSETTA_NOTEBOOK"
"""Environment variable with the path of the notebook that a kernel runs; the runner sets it."""
VS_CODE = "__vsc_ipynb_file__"
"""The notebook's path in its own globals, where VS Code runs it."""
PARAMETERS = "parameters"
"""The tag of the cell whose values the runner replaces."""
SUFFIX = ".ipynb"
EXECUTED = f"notebook{SUFFIX}"
"""A run's own copy of its notebook, in its folder, with what the cells have shown."""

_CALL = "helpers.begin("
_SET_IT = f"run %env {VARIABLE}=NAME{SUFFIX} in a cell, with this notebook's file name"


def find(names: Mapping[str, Any]) -> Path:
    """The file of the notebook, or of the script with its cells, that runs here.

    For a notebook, the first of these that is known says which: our runner, VS Code, Jupyter,
    nbmake. Else it is the shipped notebook of which IPython has run the cell that begins the run.
    ``names`` are the notebook's ``globals()``.

    Raises:
        UserError: the file is not known, or does not exist.
    """
    if script := names.get("__file__"):
        return Path(script)
    said = {
        VARIABLE: os.environ.get(VARIABLE, ""),
        VS_CODE: str(names.get(VS_CODE, "")),
        "JPY_SESSION_NAME": os.environ.get("JPY_SESSION_NAME", ""),
        "PYTEST_CURRENT_TEST": os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0],
    }
    for where, name in said.items():
        if name.endswith(SUFFIX) or (name and where == VARIABLE):
            return _file(name, where)
    calls = [typed.strip() for typed in history() if _CALL in typed]
    for name in dict.fromkeys(row.notebook for row in ROWS):
        path = paths.NOTEBOOKS / f"{name}{SUFFIX}"
        if calls and calls[-1] in [cell.strip() for cell in code_cells(path)[0]]:
            return path
    raise UserError(f"the name of this notebook is unknown: {_SET_IT}")


def _file(name: str, where: str) -> Path:
    """The notebook's file; Jupyter names it relative to its server, not to the kernel's folder."""
    given = Path(name)
    for path in (given, Path.cwd() / given.name, paths.NOTEBOOKS / given.name):
        if path.is_file():
            return path
    renamed = "restart the kernel if the notebook was renamed, or " if where != VARIABLE else ""
    raise UserError(f"{where} names {name}, which is not there: {renamed}{_SET_IT}")


def code_cells(path: Path) -> tuple[list[str], list[str]]:
    """A notebook's code cells, and apart from them those tagged ``parameters``.

    Without a file there are none. A script is one cell.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else "{}"
    if path.suffix == ".py":
        return [text], []
    code: list[str] = []
    tagged: list[str] = []
    for cell in json.loads(text).get("cells", []):
        if cell["cell_type"] == "code":
            tags = cell.get("metadata", {}).get("tags", [])
            (tagged if PARAMETERS in tags else code).append("".join(cell["source"]))
    return code, tagged


def shell() -> Any:
    """IPython's shell, which runs the cells; None without one."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return get_ipython()


def history() -> list[str]:
    """The cells that IPython has run, the running one last; without IPython there are none."""
    return list(found.history_manager.input_hist_raw) if (found := shell()) else []
