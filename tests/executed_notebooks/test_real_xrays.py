"""Real input, on one device: 749 X-rays of the NIH's own, where they are at hand."""

import tempfile
from pathlib import Path
from typing import Any

import executed_batch
import pytest

from helpers import paths, record

SAMPLE = paths.ROOT.parent / "shared" / "nih-sample"


@pytest.mark.skipif(not SAMPLE.exists(), reason="the real NIH sample (../shared) is not here")
def test_pytorch_trains_on_real_xrays(tmp_path: Path) -> None:
    recipe = tmp_path / "small.toml"
    recipe.write_text('recipe = "demo"\n[model]\nnetwork = "resnet44"\n')  # demo's takes longer
    given = {"recipe": recipe, "data": SAMPLE, "devices": 1, "epochs": 2, "run": tmp_path / "run"}
    words = [word for name, value in given.items() for word in ("-p", name, str(value))]
    words += ["--no-progress-bar", "--cwd", str(paths.NOTEBOOKS)]
    notebook = paths.NOTEBOOKS / "PyTorch_MultiGPU.ipynb"
    # Jupyter ends a kernel by a signal; what that leaves is removed by a next run: here is none.
    with tempfile.TemporaryDirectory() as own:
        executed = tmp_path / "notebook.ipynb"
        executed_batch.in_lab("papermill", *words, notebook, executed, TMPDIR=own)

    found: Any = record.read(tmp_path / "run")
    assert found["state"] == "finished"
    assert found["data"]["kind"] == "real"
    assert sum(found["data"]["images"].values()) == 749
    assert (found["recipe"]["image_size"], found["recipe"]["crop"]) == (64, 54)
    assert found["epochs"][-1]["train_loss"] < found["epochs"][0]["train_loss"]
    for row in found["test"]["findings"]:
        assert row["auc"] is not None or "not computable" in row["reason"]
