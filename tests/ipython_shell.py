"""IPython as a kernel has it, in a test's own process."""

import sys
from pathlib import Path
from typing import Any

import IPython
import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbformat.v4 import new_code_cell, new_notebook
from traitlets.config import Config


@pytest.fixture(name="shell")
def shell_fixture(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A shell that the helpers take for that of their kernel; no test after it sees it."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # it puts its own there
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    return shell


def run_all(shell: Any, *texts: str) -> None:
    """Run cells as a notebook does; an error ends the test."""
    for text in texts:
        shell.run_cell(text, store_history=True).raise_error()


def write_notebook(path: Path, parameters: str, *texts: str) -> Path:
    """A notebook with a parameters cell and more cells of code."""
    tagged = new_code_cell(parameters, metadata={"tags": ["parameters"]})
    nbformat.write(new_notebook(cells=[tagged, *map(new_code_cell, texts)]), path)
    return path
