"""Studies that have devices, executed on one and on two: `make test` runs each on what there is."""

import json
from pathlib import Path
from typing import Any

import executed_batch
import pytest

from helpers import paths


def execute(study: str, folder: Path, **parameters: Any) -> str:
    """Runs a study as `make test` does, with these parameters besides; what it printed."""
    notebook = paths.NOTEBOOKS / f"{study}.ipynb"
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    small = next(c["metadata"]["nbmake"]["mock"] for c in cells if "nbmake" in c["metadata"])
    given = folder / "parameters.yaml"
    given.write_text(json.dumps(small | parameters), encoding="utf-8")  # JSON is YAML
    words: list[str | Path] = ["-f", given, "--no-progress-bar", "--cwd", paths.NOTEBOOKS]
    executed_batch.in_lab("papermill", *words, notebook, folder / "out.ipynb")
    executed = json.loads((folder / "out.ipynb").read_text(encoding="utf-8"))
    found = [out for cell in executed["cells"] for out in cell.get("outputs", [])]
    return "".join("".join(out["text"]) for out in found if out["output_type"] == "stream")


@pytest.mark.parametrize("devices", [1, 2])
def test_loss_placement(tmp_path: Path, devices: int) -> None:
    told = execute("Study_Loss_Placement", tmp_path, devices=devices)
    assert ("nothing to gather" in told) == (devices == 1)
    assert ("through device 0" in told) == (devices == 2)


def test_scaling_of_one_device_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"devices = \[1\]: give 1 and at least one larger"):
        execute("Study_Linear_Scaling", tmp_path, devices=[1])
