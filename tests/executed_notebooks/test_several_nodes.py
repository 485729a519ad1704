"""Every framework that spans nodes on two virtual ones, by the command that users type."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import executed_batch
import pytest

from data_prep import generate_nih, resize_folder
from helpers import paths, record
from helpers.frameworks import ROWS, optional_kernels, run_label

BATCH = "test-two-nodes"
RECIPE = 'recipe = "demo"\n[model]\nnetwork = "resnet44"\n[data]\nimage_size = 24\ncrop = 20\n'
FOUND = [row for row in ROWS if not row.one_node_only and row.kernel not in optional_kernels()]
FRAMEWORKS = ",".join(row.asked or row.framework for row in FOUND)
RUNS = [f"{run_label(row.notebook, row.kernel)}-2n-1x" for row in FOUND]


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a batch on two nodes with a device each, of few small images."""
    folder = tmp_path_factory.mktemp("few")
    generate_nih(folder / "large", images=240, size=64, progress=False)
    resize_folder(folder / "large", folder / "data", size=24, progress=False)
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    choices = ["--nnodes", "2", "--devices", "1", "--batch-size", "16", "--epochs", "1"]
    choices += ["--frameworks", FRAMEWORKS]
    choices += ["--data", str(folder / "data"), "--recipe", str(folder / "recipe.toml")]
    with executed_batch.folder_of(BATCH) as runs:
        done = subprocess.run(
            [paths.VENVS / "lab" / "bin" / "rosetta", "run", *choices, "--name", BATCH],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        yield runs


@pytest.mark.parametrize("run", RUNS)
def test_it_finishes_on_two_nodes(batch: Path, run: str) -> None:
    folder = batch / run
    found = record.read(folder)
    assert found["state"] == "finished" and found["devices"]["count"] == 2
    checks = {c["check"]: c for c in found["fairness"]["checks"]}
    assert not [name for name, check in checks.items() if check["verdict"] == "fail"]
    world = found["cluster"]
    assert (world["nodes"], world["simulated"], world["launcher"]) == (2, True, "mpiexec")
    assert world["all_reduce"]["bus_bytes_per_second"] > 0
    assert world["hosts"][0]["ranks"] == [0, 1]
    assert not list(folder.glob("ranks-*")) and not list(folder.glob(".permit-*"))


@pytest.mark.parametrize("run", RUNS)
def test_each_ranks_notebook_is_kept(batch: Path, run: str) -> None:
    """Rank 0's with pictures and tables, as a kernel's."""
    folder = batch / run
    shown = []
    for file in (folder / "notebook.ipynb", folder / "rank-1" / "notebook.ipynb"):
        cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
        outputs = [each for cell in cells for each in cell.get("outputs", [])]
        shown.append({kind for each in outputs for kind in each.get("data", {})})
        assert not [each for each in outputs if each["output_type"] == "error"]
    assert {"image/png", "text/html"} <= shown[0]
