"""A notebook that is a program, trained on several ranks and on one: both come to the same.

With a small custom network, whose check takes no time, up to the test.
"""

from pathlib import Path
from typing import Any

import notebook_program
import numpy as np
import own_networks
import pytest
import ranks_tools
from notebook_cells import write_different_images
from notebook_program import UNCHANGED, Changes

from helpers import record
from helpers.fairness import process_checks
from helpers.frameworks import networks_of, row_of
from helpers.networks import weights


def prepare(folder: Path, module: str) -> Path:
    """Images and a recipe in this folder."""
    write_different_images(folder, ".png")
    module = networks_of(module)
    code = own_networks.NETS[module].replace("Dropout(0.1", "Dropout(0.0")  # which never repeats
    own_networks.recipe_of(folder / "recipe", module, code)
    return folder


def given(folder: str, devices: int) -> dict[str, Any]:
    """The notebook's parameters."""
    return {
        "data": f"{folder}/different.png",
        "recipe": f"{folder}/recipe/mine.toml",
        "devices": devices,
        "epochs": 2,
        "num_workers": 1,
        "cores_per_device": "shared",  # as on nodes: else TensorFlow adds in another order
    }


def train(
    notebook: str, folder: str, name: str, devices: int, changes: Changes = UNCHANGED, **more: Any
) -> None:
    """Train here, or on a rank, in a run of this name; see ``notebook_program.train``."""
    how = given(folder, devices) | more
    notebook_program.train(notebook, Path(folder, name), changes=changes, **how)


def on_ranks(
    notebook: str,
    folder: Path,
    name: str,
    nodes: int,
    devices: int,
    changes: Changes = UNCHANGED,
    **more: Any,
) -> None:
    """Train on so many nodes with so many devices each."""
    (run := folder / name).mkdir(exist_ok=True)
    row = row_of(notebook)
    assert row is not None
    words = (notebook, str(folder), name, devices, dict(changes))
    ranks_tools.run(
        run,
        f"import trained_on_ranks as t\nt.train(*{words!r}, **{more!r})",
        nodes=nodes,
        each=devices if row.rank_a_device else 1,
        devices=devices,
        framework=row.module,
    )


def assert_the_same(folder: Path, name: str, other: str) -> None:
    """A run on two ranks took the steps of another one, and its check was passed."""
    found, one = (record.read(folder / each) for each in (name, other))
    for ours, theirs in zip(found["epochs"], one["epochs"], strict=True):
        for metric in ("train_loss", "valid_loss", "learning_rate"):
            assert ours[metric] == pytest.approx(theirs[metric], rel=1e-5)
    each, expected = (weights.load(folder / run / "weights.safetensors") for run in (name, other))
    for weight, array in expected.items():
        np.testing.assert_allclose(each[weight], array, rtol=1e-4, atol=1e-6)
    rows = {row["check"]: row for row in found["fairness"]["checks"]}
    assert not [check for check, row in rows.items() if row["verdict"] == "fail"]
    assert rows[process_checks.JOINED]["reason"] == "2 processes, 2 devices, 1 host"
    for check in ("gradients, n devices / one", process_checks.WEIGHTS):
        assert rows[check]["verdict"] == "pass"
