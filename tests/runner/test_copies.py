"""Copies of notebooks: under their own names, run where they are named, with their own code."""

import json
from typing import Any

import pytest
from runner_tools import Suite

from helpers import paths
from helpers.runner import plans

ORIGINAL, COPY = "PyTorch_MultiGPU", "PyTorch_MultiGPU-Copy1"


def test_a_copy_is_run_where_it_is_named_alone(suite: Suite) -> None:
    for name in (ORIGINAL, COPY, "mine"):
        suite.notebook(name)
    suite.notebook("Zoo_MultiGPU", framework="Zoo")

    def planned(**asked: Any) -> list[str]:
        return [run.notebook for run in plans.make_plan(devices=["1"], recipe="demo", **asked).runs]

    assert planned() == [ORIGINAL, "Zoo_MultiGPU"]
    assert planned(frameworks=["pytorch"]) == [ORIGINAL]
    assert planned(notebooks=[COPY, f"{ORIGINAL}.ipynb"]) == [COPY, ORIGINAL]
    (paths.NOTEBOOKS / f"{ORIGINAL}.ipynb").unlink()
    assert planned(frameworks=["pytorch"]) == [COPY, "mine"]  # nothing else is meant then


@pytest.mark.parametrize(
    ("tagged", "said"), [(0, "no cell has the tag 'parameters'"), (2, "2 cells have the tag 'par")]
)
def test_without_its_parameters_cell_a_notebook_is_refused_before_a_kernel_starts(
    suite: Suite, tagged: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.without_kernels()
    suite.notebook(ORIGINAL, "raise AssertionError('it was run')")
    assert suite.compare("--name", "failed") == 1
    path = paths.NOTEBOOKS / f"{ORIGINAL}.ipynb"
    content = json.loads(path.read_text("utf-8"))
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(code):
        cell["metadata"]["tags"] = ["parameters"] if number < tagged else []
    path.write_text(json.dumps(content), "utf-8")
    capsys.readouterr()
    for asked in (["--name", "new"], ["--dry-run"], ["--resume", "failed"]):
        assert suite.compare(*asked) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {path}: {said}") and "section 2" in line
    assert not (paths.RUNS / "new").exists()
