"""Copies of notebooks: under their own names, run where they are named, with their own code."""

import json
from typing import Any

import pytest
from runner_tools import BEGIN, FINISH, ROOT, Suite, images_fixture, suite_fixture

from helpers import paths
from helpers.record import run_identity
from helpers.runner import plans

__all__ = ["images_fixture", "suite_fixture"]

ORIGINAL, COPY = "PyTorch_MultiGPU", "PyTorch_MultiGPU-Copy1"
FOLLOW = f"""
import json, sys
sys.path[:0] = [{str(ROOT)!r}]
from helpers.launch import this_notebook
from helpers.record import run_identity
file = this_notebook.find(globals())
code = run_identity.follow(file)"""
TELL = "Path('told.json').write_text(json.dumps([str(file), code()]))"


def test_a_copy_is_run_where_it_is_named_alone(suite: Suite) -> None:
    for name, framework in {
        ORIGINAL: "PyTorch",
        COPY: "PyTorch",
        "mine": "PyTorch",
        "Zoo_MultiGPU": "Zoo",
    }.items():
        suite.notebook(name, framework=framework)

    def planned(**asked: Any) -> list[str]:
        return [run.notebook for run in plans.make_plan(devices=["1"], recipe="demo", **asked).runs]

    assert planned() == [ORIGINAL, "Zoo_MultiGPU"]
    assert planned(frameworks=["pytorch"]) == [ORIGINAL]
    assert planned(notebooks=[COPY, f"{ORIGINAL}.ipynb"]) == [COPY, ORIGINAL]
    (paths.NOTEBOOKS / f"{ORIGINAL}.ipynb").unlink()
    assert planned(frameworks=["pytorch"]) == [COPY, "mine"]  # nothing else is meant then


def test_the_runner_tells_a_notebook_its_file(suite: Suite) -> None:
    suite.notebook(COPY, BEGIN, FOLLOW, TELL, FINISH)
    assert suite.compare("--notebooks", COPY, "--name", "copy") == 0
    path = paths.NOTEBOOKS / f"{COPY}.ipynb"
    told = json.loads((paths.NOTEBOOKS / "told.json").read_text("utf-8"))
    assert told == [str(path), run_identity.follow(path)()]


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
    for cell in content["cells"]:
        cell["metadata"].pop("tags", None)
    for cell in [cell for cell in content["cells"] if cell["cell_type"] == "code"][:tagged]:
        cell["metadata"]["tags"] = ["parameters"]
    path.write_text(json.dumps(content), "utf-8")
    capsys.readouterr()
    for asked in (["--name", "new"], ["--dry-run"], ["--resume", "failed"]):
        assert suite.compare(*asked) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {path}: {said}") and "section 2" in line
    assert not (paths.RUNS / "new").exists()
