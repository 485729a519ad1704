"""The code that ranks run: what the kernel ran so far, so that edited cells count."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from helpers import paths

Cell = tuple[str, str]
"""A name for tracebacks, and the text."""


class Cells:
    """Takes note of the cells that a kernel runs, from the run's beginning on."""

    def __init__(self, notebook: str, parameters: Mapping[str, Any]) -> None:
        self._notebook, self._parameters = notebook, dict(parameters)
        self._failed: set[int] = set()
        self._shell = running_shell()
        if self._shell is not None:
            self._shell.events.register("post_run_cell", self._after)

    def so_far(self) -> list[Cell]:
        """Those that ran without an error and the one that runs, without what only IPython knows.

        Outside Jupyter, the notebook's own, with the parameters that were given.
        """
        if self._shell is None:
            return _of_file(self._notebook, self._parameters)
        texts = enumerate(self._shell.user_ns["In"])
        ran = [(number, text) for number, text in texts if number and number not in self._failed]
        change: Callable[[str], str] = self._shell.transform_cell
        return [(f"cell {number}", _plain(change(text))) for number, text in ran]

    def _after(self, result: Any) -> None:
        if result.error_before_exec or result.error_in_exec:
            self._failed.add(result.execution_count)


def running_shell() -> Any:
    """IPython's shell in a kernel; None outside IPython."""
    try:
        from IPython import get_ipython
    except ImportError:
        return None
    return get_ipython()


def _plain(text: str) -> str:
    """A cell without its magics, which are for whoever looks at the notebook."""
    lines: Sequence[str] = text.splitlines(keepends=True)
    return "".join("\n" if line.startswith("get_ipython()") else line for line in lines)


def _of_file(notebook: str, parameters: Mapping[str, Any]) -> list[Cell]:
    content = json.loads((paths.NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))
    found = []
    for number, cell in enumerate(content["cells"]):
        if cell["cell_type"] != "code":
            continue
        text = "".join(cell["source"])
        found.append((f"cell {number}", text))
        if "parameters" in cell["metadata"].get("tags", []):
            given = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
            found.append(("parameters", given))
        if "this_run.rehearse(" in text:
            break
    return found
