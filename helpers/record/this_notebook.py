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

_SET_IT = f"run %env {VARIABLE}=NAME{SUFFIX} in a cell, with this notebook's file name"


def find(names: Mapping[str, Any]) -> Path:
    """The file of the notebook, or of the script with its cells, that runs here.

    For a notebook, our runner, VS Code or Jupyter says which. Else it is the shipped notebook of
    which IPython has run the cell that begins the run. ``names`` are the notebook's ``globals()``.

    Raises:
        UserError: the file is not known, or does not exist.
    """
    if script := names.get("__file__"):
        return Path(script)
    said = {
        VARIABLE: os.environ.get(VARIABLE, ""),
        VS_CODE: str(names.get(VS_CODE, "")),
        "JPY_SESSION_NAME": os.environ.get("JPY_SESSION_NAME", ""),
    }
    for where, given in said.items():
        name = Path(given).name
        if name.endswith(SUFFIX) or (name and where == VARIABLE):
            # Jupyter names it relative to its server, not to the kernel's folder.
            for path in (Path(given), Path.cwd() / name, paths.NOTEBOOKS / name):
                if path.is_file():
                    return path
            raise UserError(f"{where} names {given}, which is not there: {_SET_IT}")
    calls = [typed.strip() for typed in history() if "helpers.begin(" in typed]
    for name in dict.fromkeys(row.notebook for row in ROWS):
        path = paths.NOTEBOOKS / f"{name}{SUFFIX}"
        if calls and calls[-1] in [cell.strip() for cell in code_cells(path)[0]]:
            return path
    raise UserError(f"the name of this notebook is unknown: {_SET_IT}")


def code_cells(path: Path) -> tuple[list[str], list[str]]:
    """A notebook's code cells, and those tagged ``parameters``; a script is one, no file none."""
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
    from IPython import get_ipython

    return get_ipython()


def history() -> list[str]:
    """The cells that IPython has run, the running one last; without IPython there are none."""
    return list(found.history_manager.input_hist_raw) if (found := shell()) else []
