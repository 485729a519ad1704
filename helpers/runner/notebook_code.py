"""Run a notebook's code cells outside Jupyter, for tests and benchmarks."""

import json
from collections.abc import Callable
from typing import Any

from helpers import paths
from helpers.record import this_notebook
from helpers.run import Run


def run_cells(
    notebook: str,
    *,
    until: str | None = None,
    after: str | None = None,
    wanted: Callable[[str], bool] = lambda text: True,
    checked: bool = True,
    changed: Callable[[str], str] = lambda text: text,
    **parameters: Any,
) -> dict[str, Any]:
    """Run a notebook's code cells here and return the names they have defined.

    Args:
        until: stop before the first cell, of code or prose, that holds this.
        after: stop after the first code cell that holds this.
        wanted: whether to run a code cell, by its source.
        changed: gives what to run in place of a code cell's source.
        checked: with the check of fairness, which takes most of the time until training begins.
        parameters: in place of what the cell tagged ``parameters`` says.
    """
    path = paths.NOTEBOOKS / f"{notebook}.ipynb"
    names: dict[str, Any] = {"__name__": "__main__", this_notebook.VS_CODE: str(path)}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if until is not None and until in text:
            break
        if cell["cell_type"] != "code" or not wanted(text):
            continue
        exec(compile(changed(text), notebook, "exec"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            names.update(parameters)
        if not checked and isinstance(own := names.get("run"), Run):
            vars(own)["check"] = _nothing
        if after is not None and after in text:
            break
    return names


def _nothing(*given: Any) -> None:
    pass
