"""A cell that prints without end: its notebook keeps 10 MB."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("papermill")

from runner_tools import Suite, images_fixture, suite_fixture

from helpers.launch import cell_output
from helpers.runner import kernel_processes

__all__ = ["images_fixture", "suite_fixture"]

PRINTS = """
from IPython.display import display
for number in range(13):
    print("x" * 900_000)
display("shown too late")
raise ValueError("a bad day")"""


def outputs(notebook: Path) -> list[dict[str, Any]]:
    cell = json.loads(notebook.read_text(encoding="utf-8"))["cells"][-1]
    found: list[dict[str, Any]] = cell["outputs"]
    return found


def test_the_notebook_keeps_the_first_part_a_note_and_the_error(suite: Suite) -> None:
    suite.notebook("PyTorch_MultiGPU", PRINTS)
    target = suite.folder / "out.ipynb"
    source = suite.folder / "notebooks" / "PyTorch_MultiGPU.ipynb"
    with pytest.raises(Exception, match="a bad day"):
        kernel_processes.execute(source, target, {}, kernel="tiny")
    (*streams, error) = outputs(target)[-20:]
    text = "".join("".join(each["text"]) for each in streams)
    assert text.endswith("x" + cell_output.NOTE) and text.count(cell_output.NOTE) == 1
    assert len(text) == cell_output.MOST + len(cell_output.NOTE)
    assert error["output_type"] == "error" and error["evalue"] == "a bad day"


def test_what_is_cleared_does_not_count(suite: Suite) -> None:
    """A chart drawn again after each epoch replaces the one before."""
    suite.notebook(
        "PyTorch_MultiGPU",
        "from IPython.display import clear_output\n"
        "for number in range(15):\n    clear_output(wait=True)\n    print(number, 'x' * 999_999)",
    )
    target = suite.folder / "out.ipynb"
    source = suite.folder / "notebooks" / "PyTorch_MultiGPU.ipynb"
    kernel_processes.execute(source, target, {}, kernel="tiny")
    text = "".join("".join(each["text"]) for each in outputs(target))
    assert text.startswith("14 ") and len(text) < 2_000_000
