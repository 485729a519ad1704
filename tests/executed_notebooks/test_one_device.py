"""Every framework on one device, by the command that users type; the demo above is on two."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import executed_batch
import pytest

from data_prep import generate_nih, resize_folder
from helpers import paths, record
from helpers.frameworks import ROWS

BATCH = "test-one-device"
RECIPE = 'recipe = "demo"\n[model]\nnetwork = "resnet44"\n[data]\nimage_size = 24\ncrop = 20\n'
NOTEBOOKS = [row.notebook for row in ROWS if not (row.many_nodes_only or row.optional)]


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a batch on one device: few small images, and the network that is the quickest.

    What differs on one device is not in the network; the notebooks' own is trained on two.
    """
    folder = tmp_path_factory.mktemp("few")
    generate_nih(folder / "large", images=240, size=64, progress=False)
    resize_folder(folder / "large", folder / "data", size=24, progress=False)
    (folder / "recipe.toml").write_text(RECIPE, encoding="utf-8")
    choices = ["--devices", "1", "--batch-size", "16", "--epochs", "2", "--name", BATCH]
    choices += ["--data", str(folder / "data"), "--recipe", str(folder / "recipe.toml")]
    with executed_batch.folder_of(BATCH) as runs:
        done = subprocess.run(
            [paths.VENVS / "lab" / "bin" / "rosetta", "run", *choices],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        yield runs


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_it_finishes_on_one_device(batch: Path, notebook: str) -> None:
    found = record.read(batch / f"{notebook}-1x")
    assert found["state"] == "finished" and found["devices"]["count"] == 1
    checks = {c["check"]: c for c in found["fairness"]["checks"]}
    assert not [name for name, check in checks.items() if check["verdict"] == "fail"]
    assert checks["validated with the statistics that are saved"]["verdict"] in ("pass", "expected")
    assert "no_allreduce" not in found, "on one device there is no all-reduce to leave out"
    assert found["attribution"]["ways"]["ablation"]["communication"] == pytest.approx(0)
    for kind in ("files", "synthetic", "loader"):
        low, middle, high = (found[kind][key] for key in ("low", "images_per_second", "high"))
        assert 0 < low <= middle <= high and len(found[kind]["rounds"]) > 3


def test_the_report_is_written(batch: Path) -> None:
    assert (batch / "report.html").stat().st_size > 100_000
    journal = json.loads((batch / "experiment.json").read_text(encoding="utf-8"))
    assert {run["state"] for run in journal["runs"]} == {"finished"}
