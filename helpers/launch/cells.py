"""Run a notebook's cells in this process, and store what they show in the notebook's file."""

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from helpers import paths

_STREAMS = {"out_stream": "stdout", "err_stream": "stderr"}


def execute(content: Any, target: Path, reached: Callable[[int], None] = lambda cell: None) -> None:
    """Run a notebook's cells, and write it into ``target`` after each, with what they have shown.

    ``reached`` is called with each cell's place before it runs. A cell's own error is raised.
    """
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "nocolor"
    shell = InteractiveShell.instance(config=config, user_module=ModuleType("__main__"))
    for number, cell in enumerate(content["cells"]):
        if cell["cell_type"] != "code":
            continue
        reached(number)
        count = cell["execution_count"] = shell.execution_count
        found = shell.run_cell("".join(cell["source"]), store_history=True)
        error = found.error_before_exec or found.error_in_exec
        cell["outputs"] = _outputs(shell.history_manager, count)
        try:
            paths.write_atomically(target, json.dumps(content, indent=1) + "\n")
        except OSError:
            if error is None:  # else the cell's own error counts: a full disk may be its cause
                raise
        if error is not None:
            raise error


def _outputs(history: Any, count: int) -> list[dict[str, Any]]:
    """What a cell has shown, as a notebook's file has it."""
    found: list[dict[str, Any]] = []
    for shown in history.outputs[count]:
        kind, bundle = shown.output_type, shown.bundle
        if kind in _STREAMS:
            text = "".join(bundle["stream"])
            found.append({"output_type": "stream", "name": _STREAMS[kind], "text": text})
            continue
        data = {
            name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for name, value in bundle.items()
        }
        more = {"execution_count": count} if kind == "execute_result" else {}
        found.append({"output_type": kind, "data": data, "metadata": {}, **more})
    if error := history.exceptions.get(count):
        found.append({"output_type": "error", **error})
    return found
