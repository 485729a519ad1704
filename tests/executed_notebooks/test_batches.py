"""Whole notebooks of every framework, by nbmake and by `rosetta run`: with tiny networks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import executed_batch
import pytest
from own_networks import recipe_of_all

from helpers import paths, record
from helpers.frameworks import ROWS
from helpers.runner import experiments

TRAINED = [row.notebook for row in ROWS if not (row.many_nodes_only or row.optional)]
SPANNING = [row for row in ROWS if row.module in ("pytorch", "chainermn") and not row.one_node_only]
"""These run over two nodes here; `make soak` runs the others (tests/kernels)."""
OVER_NODES = [f"{row.notebook}-2n-1x" for row in SPANNING]


@pytest.fixture(scope="module", name="recipe")
def recipe_fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recipe_of_all(tmp_path_factory.mktemp("own") / "recipe")


@pytest.fixture(scope="module")
def executed(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs of the frameworks' notebooks by nbmake, on two devices."""
    runs = tmp_path_factory.mktemp("nbmake")
    (runs / "temporary").mkdir()
    words: list[str | Path] = ["--nbmake"]
    words += [paths.NOTEBOOKS / f"{notebook}.ipynb" for notebook in TRAINED]
    variables = {"ROSETTA_RUNS": str(runs), "TMPDIR": str(runs / "temporary")}
    variables["PYTHONPATH"] = f"{paths.ROOT / 'tests' / 'short_measurements'}:{paths.ROOT}"
    executed_batch.in_lab("pytest", *words, "--recipe", recipe, **variables)
    return runs / "interactive"


@pytest.mark.parametrize("notebook", TRAINED)
def test_it_trains(executed: Path, notebook: str) -> None:
    found = record.read(executed / f"{notebook}-2x")
    assert_sound(found)
    assert found["devices"]["count"] == 2
    for kind in ("files", "synthetic", "loader"):
        rounds = found[kind]["rounds"]
        assert 0 < min(rounds) <= found[kind]["images_per_second"] <= max(rounds)
        assert len(rounds) > 3
    # Linear scaling is what ran.
    recipe, images = found["recipe"], found["data"]["images"]["train"]
    assert recipe["global_batch_size"] == recipe["batch_size"] * 2
    assert recipe["scaled_learning_rate"] == pytest.approx(recipe["learning_rate"] * 2)
    assert len(found["epochs"]) == recipe["epochs"]
    for epoch in found["epochs"]:
        assert epoch["steps"] == images // recipe["global_batch_size"]
        assert epoch["images"] == epoch["steps"] * recipe["global_batch_size"]


@pytest.fixture(scope="module")
def over_nodes(recipe: Path) -> Iterator[Path]:
    """The folder of a batch on two nodes with a device each."""
    frameworks = ",".join(row.framework for row in SPANNING)
    choices = ["--nnodes", "2", "--devices", "1", "--epochs", "2", "--frameworks", frameworks]
    with executed_batch.finished("test-nodes", "--recipe", recipe, *choices) as folder:
        yield folder


@pytest.mark.parametrize("run", OVER_NODES)
def test_it_trains_over_two_nodes(over_nodes: Path, run: str) -> None:
    folder = over_nodes / run
    found = record.read(folder)
    assert_sound(found)
    assert found["devices"]["count"] == 2
    world = found["cluster"]
    assert (world["nodes"], world["simulated"], world["launcher"]) == (2, True, "mpiexec")
    assert not list(folder.glob("ranks-*"))
    shown = []
    for file in (folder / "notebook.ipynb", folder / "rank-1" / "notebook.ipynb"):
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        outputs = [each for cell in cells for each in cell.get("outputs", [])]
        shown.append({kind for each in outputs for kind in each.get("data", {})})
        assert not [each for each in outputs if each["output_type"] == "error"]
    assert {"image/png", "text/html"} <= shown[0]  # rank 0's has pictures and tables


def test_the_report_is_written_and_compare_shows_it(over_nodes: Path, tmp_path: Path) -> None:
    assert (over_nodes / "report.html").stat().st_size > 100_000
    batch = experiments.load(over_nodes.name)
    assert all(map(batch.is_finished, batch.runs))
    shown = tmp_path / "compare.ipynb"
    how = ["--no-progress-bar", "--cwd", str(paths.NOTEBOOKS), "-p", "runs", over_nodes.name]
    executed_batch.in_lab("papermill", *how, paths.NOTEBOOKS / "Compare.ipynb", shown)
    cells = json.loads(shown.read_text(encoding="utf-8"))["cells"]
    said = json.dumps([cell.get("outputs", []) for cell in cells])
    names = {record.read(over_nodes / run)["framework"]["name"] for run in OVER_NODES}
    assert "image/png" in said and not [name for name in names if f">{name}" not in said]


def assert_sound(found: Any) -> None:
    """It ended, it learned, and no row of the fairness check fails."""
    assert found["state"] == "finished", found["reason"]
    assert not [each for each in found["fairness"]["checks"] if each["verdict"] == "fail"]
    checks = {each["check"]: each for each in found["fairness"]["checks"]}
    assert checks["validated with the statistics that are saved"]["verdict"] in ("pass", "expected")
    first, last = found["epochs"][0], found["epochs"][-1]
    # Keras's velocity has the rate in it: after a drop, its training loss rises for a while.
    assert any(last[loss] < first[loss] for loss in ("train_loss", "valid_loss"))
    step = found["training"]["step_seconds"]
    assert 0 < step["minimum"] <= step["median"] <= step["maximum"]
