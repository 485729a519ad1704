"""Two rows of one notebook, each in its kernel: run, recorded, estimated and resumed apart."""

import json
from dataclasses import replace

import pytest
from runner_tools import BEGIN, FINISH, PARAMETERS, Suite, images_fixture, suite_fixture

from helpers import frameworks, paths
from helpers.results import comparison
from helpers.runner import experiments
from helpers.runner.estimate import History

__all__ = ["images_fixture", "suite_fixture"]

NOTEBOOK = "Keras_MultiGPU"
OWN, ON_JAX = f"{NOTEBOOK}-1x", f"{NOTEBOOK}-jax-1x"
# As Keras's modules have it, whose kernel the record says.
NAMED = """
kernel = {"tensorflow": "tiny", "jax": "jax"}[backend]
MADE["framework"] |= {"name": "Keras", "kernel": kernel}
MADE["data"]["folder"] = data
with open(Path(run).parents[2] / "log", "a") as file:
    file.write(f"{Path(run).name} {backend}\\n")"""
FAULT = """
assert backend != "jax" or (Path(run).parents[2] / "mended").exists(), "not yet"
"""


@pytest.fixture(name="rows")
def rows_fixture(suite: Suite) -> Suite:
    """A checkout with Keras's notebook, and with the kernels of its other rows."""
    tiny = suite.folder / "jupyter" / "kernels" / "tiny" / "kernel.json"
    folder = tiny.parents[1] / "jax"
    folder.mkdir()
    (folder / "kernel.json").write_text(tiny.read_text("utf-8"), "utf-8")
    parameters = f'{PARAMETERS}\nbackend = "none"'
    cells = (BEGIN, NAMED, FAULT, FINISH)
    suite.notebook(NOTEBOOK, *cells, parameters=parameters, framework="Keras")
    suite.without_kernels()
    return suite


def states(suite: Suite, batch: str) -> dict[str, str]:
    folder = suite.folder / "runs" / batch
    return {each.folder: each.state for each in experiments.load(folder.name).runs}


def test_they_are_run_recorded_and_resumed_apart(rows: Suite) -> None:
    assert rows.compare("--frameworks", "keras,keras-jax", "--name", "both") == 1
    expected = {OWN: "finished", ON_JAX: "failed"}
    assert states(rows, "both") == expected
    (rows.folder / "mended").touch()
    assert rows.compare("--resume", "both") == 0
    assert set(states(rows, "both").values()) == {"finished"}
    ran = (rows.folder / "log").read_text("utf-8").splitlines()
    assert sorted(ran) == sorted([f"{OWN} tensorflow", *[f"{ON_JAX} jax"] * 2])
    labels = [entry.label for entry in comparison.load(rows.folder / "runs" / "both").entries]
    assert labels == ["Keras", "Keras on JAX"]


def test_each_is_estimated_by_its_own_runs(rows: Suite) -> None:
    (rows.folder / "mended").touch()
    assert rows.compare("--frameworks", "keras,keras-jax", "--name", "first") == 0
    path = paths.RUNS / "first" / "experiment.json"
    journal = json.loads(path.read_text("utf-8"))
    for run, seconds in zip(journal["runs"], (100.0, 7.0), strict=True):
        run["seconds"] = seconds
    path.write_text(json.dumps(journal), "utf-8")
    plan = experiments.load("first").plan
    guesses = [History(plan).of(state) for state in plan.runs]
    assert [guess.seconds for guess in guesses if guess] == [100.0, 7.0]


def test_without_a_word_the_notebooks_own_row_alone_is_run(
    rows: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rows.compare("--dry-run") == 0
    said = capsys.readouterr().out
    assert f"{NOTEBOOK} on 1 device, environment tiny" in said and said.count(NOTEBOOK) == 1
    assert rows.compare("--frameworks", "keras-jax", "--dry-run") == 0
    assert f"{NOTEBOOK}-jax on 1 device, environment jax" in capsys.readouterr().out


def test_a_rows_parameters_reach_its_notebook_and_no_other(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.without_kernels()
    own = replace(frameworks.ROWS[0], notebook="Own_MultiGPU", parameters={"way": "quick"})
    monkeypatch.setattr(frameworks, "ROWS", (*frameworks.ROWS, own))
    parameters = f'{PARAMETERS}\nway = "plain"'
    for name, way in (("Own_MultiGPU", "quick"), ("Other_MultiGPU", "plain")):
        suite.notebook(name, BEGIN, f"assert way == {way!r}", FINISH, parameters=parameters)
    assert suite.compare("--name", "both") == 0
    assert set(suite.states().values()) == {"finished"}
