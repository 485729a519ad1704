"""Checkpoints: whole at every moment, and never taken for another run's."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import checkpoint, identity, record
from helpers.devices import Devices
from helpers.errors import UserError
from helpers.recipe import Recipe, lookup

INITIAL = {"w": np.zeros((2, 3), np.float32)}
ROW: dict[str, Any] = {"epoch": 1, "train_loss": 0.5, "valid_auc": None}
DEMO = lookup("demo")


def begun(folder: Path, recipe: Recipe = DEMO, images: str = "a") -> record.Run:
    """A run's record, as far as a notebook has written it before it trains."""
    run = record.start(
        folder,
        notebook="PyTorch_MultiGPU",
        framework="PyTorch",
        kernel="pytorch",
        versions={},
        devices=Devices("cpu", ("one", "two")),
        recipe=recipe.on(2),
    )
    parts = {"train": 256, "valid": 8, "test": 8}
    data = {"folder": "d", "kind": "real", "pixels": 38, "images": parts, "patients": parts}
    run.add("data", data | {"steps_per_epoch": 2, "sha256": images})
    return run


def resume(folder: Path, recipe: Recipe = DEMO, images: str = "a") -> checkpoint.Checkpoint:
    return checkpoint.begin(begun(folder, recipe, images), INITIAL, resume=True)


def start(folder: Path) -> checkpoint.Writer:
    return checkpoint.Writer(checkpoint.begin(begun(folder), INITIAL, resume=True))


def write(folder: Path, epochs: int = 1) -> None:
    writer = start(folder)
    weights = {"w": np.arange(6, dtype=np.float32).reshape(3, 2).T}  # not contiguous
    optimizer = {"first/w": np.ones((2, 3), np.float32), "step": np.array(8)}
    writer.save([ROW | {"epoch": e + 1} for e in range(epochs)], 2.5, weights, optimizer)
    writer.close()


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    write(tmp_path, epochs=2)
    begin = resume(tmp_path)
    assert begin.epoch == 2 and begin.first_step == 2.5
    assert begin.history[0] == ROW
    assert np.array_equal(begin.weights["w"], np.arange(6).reshape(3, 2).T)
    assert begin.optimizer["step"].shape == () and begin.optimizer["step"] == 8
    assert {path.name for path in tmp_path.iterdir()} == {checkpoint.FILE, record.FILE}
    assert not begin.changed_code and begin.as_record(0.5) == {"resumed_after": 2, "seconds": 0.5}


def test_without_resume_training_begins_anew_and_the_old_checkpoint_goes(tmp_path: Path) -> None:
    write(tmp_path)
    begin = checkpoint.begin(begun(tmp_path), INITIAL, resume=False)
    assert begin.epoch == 0 and begin.weights is INITIAL and begin.optimizer == {}
    assert not (tmp_path / checkpoint.FILE).exists()


def test_nothing_to_resume_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert resume(tmp_path).epoch == 0
    assert "Nothing to resume" in capsys.readouterr().out


def test_another_recipe_is_refused_with_what_differs(tmp_path: Path) -> None:
    write(tmp_path)
    other = replace(DEMO, seed=3, batch=32)
    with pytest.raises(UserError, match=r"another recipe \(batch 64, global_batch 128, seed 0\)"):
        resume(tmp_path, other)
    assert (tmp_path / checkpoint.FILE).exists()


@pytest.mark.parametrize("damage", [b"", b"no", bytes(100)])
def test_a_damaged_one_is_refused(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / checkpoint.FILE).write_bytes(damage)
    with pytest.raises(UserError, match="not a checkpoint"):
        resume(tmp_path)


def test_the_one_before_stays_until_the_next_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And training goes on while it is written."""
    write(tmp_path)
    before, may = (tmp_path / checkpoint.FILE).read_bytes(), threading.Event()
    save_file = checkpoint.save_file

    def slowly(arrays: Any, path: Path, metadata: Any) -> None:
        path.write_bytes(b"half")
        assert may.wait(10)
        save_file(arrays, path, metadata=metadata)

    monkeypatch.setattr(checkpoint, "save_file", slowly)
    writer = start(tmp_path)
    writer.save([ROW, ROW], 1.0, INITIAL, {})  # returns at once
    assert (tmp_path / checkpoint.FILE).read_bytes() == before
    may.set()
    writer.close()
    assert resume(tmp_path).epoch == 2


def test_a_disk_that_is_full_is_an_error_and_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    writer = start(tmp_path)
    writer.save([ROW, ROW], 1.0, INITIAL, {})
    with pytest.raises(OSError, match="No space"):
        writer.close()
    assert resume(tmp_path).epoch == 1


def test_other_images_are_refused_in_one_line(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(UserError, match="on other images or labels; give it the same") as error:
        resume(tmp_path, images="b")
    assert "\n" not in str(error.value) and (tmp_path / checkpoint.FILE).exists()


def test_other_code_goes_on_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    monkeypatch.setattr(identity, "code", lambda notebook: "changed")
    begin = resume(tmp_path)
    assert begin.as_record(0.0) == {"resumed_after": 1, "seconds": 0.0, "changed_code": True}
    assert "not of one program" in capsys.readouterr().out


def test_the_identity_of_a_run_has_a_digest_of_everything_that_made_it(tmp_path: Path) -> None:
    one = identity.of(begun(tmp_path).content)
    assert set(one) == {"recipe", "data", "code"}
    other = identity.of(begun(tmp_path, replace(DEMO, seed=1), images="b").content)
    assert one["code"] == other["code"]
    assert one["recipe"] != other["recipe"] and one["data"] != other["data"]


def test_the_code_is_the_notebooks_and_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("helpers/a.py", "data_prep/b.py", "gpumon/c.py", "notebooks/N.ipynb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"cells": []}')
    monkeypatch.setattr("helpers.paths.ROOT", tmp_path)
    monkeypatch.setattr("helpers.paths.NOTEBOOKS", tmp_path / "notebooks")

    def digest() -> str:
        identity.code.cache_clear()
        return identity.code("N")

    def cell(source: str, *tags: str) -> str:
        cell = {"cell_type": "code", "source": [source], "metadata": {"tags": tags}}
        return json.dumps({"cells": [cell]})

    before = digest()
    (tmp_path / "gpumon/c.py").write_text("looks on")
    (tmp_path / "notebooks/N.ipynb").write_text(cell("seed = 1", "parameters"))
    assert digest() == before
    (tmp_path / "notebooks/N.ipynb").write_text(cell("step()"))
    changed = digest()
    (tmp_path / "helpers/a.py").write_text("other")
    assert len({before, changed, digest()}) == 3
    identity.code.cache_clear()
