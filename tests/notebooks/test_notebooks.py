"""What every notebook must be before anybody runs it: clean, in its kernel, in the fixed order."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from helpers.frameworks import ROWS
from helpers.runner import selection

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
FRAMEWORK_NOTEBOOKS = list(selection.framework_notebooks())
ALL = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
STUDIES = [name for name in ALL if name.startswith("Study_")]
KERNELS = {row.notebook: row.kernel for row in ROWS}


def read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))
    return content


def code(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in content["cells"] if cell["cell_type"] == "code"]


def parameters(content: dict[str, Any]) -> list[dict[str, Any]]:
    return [c for c in code(content) if "parameters" in c["metadata"].get("tags", [])]


@pytest.mark.parametrize("name", ALL)
def test_no_outputs_are_committed(name: str) -> None:
    for cell in code(read(name)):
        assert cell["outputs"] == [] and cell["execution_count"] is None, cell["source"]


@pytest.mark.parametrize("name", ALL)
def test_it_names_its_kernel(name: str) -> None:
    metadata = read(name)["metadata"]
    framework = metadata.get("rosetta", {}).get("framework", "")
    expected = KERNELS.get(name, "lab")
    if name in STUDIES:  # a study runs in any kernel, and is no run of a framework
        assert framework == "" and metadata["kernelspec"]["name"] in KERNELS.values()
    else:
        assert metadata["kernelspec"]["name"] == expected
    assert metadata["kernelspec"]["language"] == "python"


@pytest.mark.parametrize("name", ALL)
def test_it_has_one_cell_of_parameters(name: str) -> None:
    (cell,) = parameters(read(name))
    assigned = [node.targets[0] for node in ast.parse("".join(cell["source"])).body]  # type: ignore[attr-defined]
    if name in STUDIES:  # what `make test` shrinks must be a parameter, or it shrinks nothing
        mocked = cell["metadata"].get("nbmake", {}).get("mock", {})
        assert set(mocked) <= {target.id for target in assigned}
        return
    given = [getattr(target, "id", "") for target in assigned]
    if name == "Compare":
        assert given == ["runs"]
        return
    # Any other parameter can be a line of its own.
    assert given[:4] == ["recipe", "devices", "precision", "epochs"] and len(given) <= 6


@pytest.mark.parametrize("name", FRAMEWORK_NOTEBOOKS)
def test_it_is_tested_with_two_epochs_and_its_last_cell_finishes_the_run(name: str) -> None:
    (cell,) = parameters(read(name))
    assert cell["metadata"]["nbmake"] == {"mock": {"epochs": 2}}
    assert "".join(code(read(name))[-1]["source"]) == "run.report()"
