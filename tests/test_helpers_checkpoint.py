"""Checkpoints: whole at every moment, and never taken for another run's."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import checkpoint
from helpers.errors import UserError
from helpers.recipe import lookup

SCALED = lookup("demo").on(2)
INITIAL = {"w": np.zeros((2, 3), np.float32)}
ROW: dict[str, Any] = {"epoch": 1, "train_loss": 0.5, "valid_auc": None}


def write(folder: Path, epochs: int = 1) -> None:
    writer = checkpoint.Writer(folder, SCALED)
    weights = {"w": np.arange(6, dtype=np.float32).reshape(3, 2).T}  # not contiguous
    optimizer = {"first/w": np.ones((2, 3), np.float32), "step": np.array(8)}
    writer.save([ROW | {"epoch": e + 1} for e in range(epochs)], 2.5, weights, optimizer)
    writer.close()


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    write(tmp_path, epochs=2)
    begin = checkpoint.begin(tmp_path, SCALED, INITIAL, resume=True)
    assert begin.epoch == 2 and begin.first_step == 2.5
    assert begin.history[0] == ROW
    assert np.array_equal(begin.weights["w"], np.arange(6).reshape(3, 2).T)
    assert begin.optimizer["step"].shape == () and begin.optimizer["step"] == 8
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.FILE]


def test_without_resume_training_begins_anew_and_the_old_checkpoint_goes(tmp_path: Path) -> None:
    write(tmp_path)
    begin = checkpoint.begin(tmp_path, SCALED, INITIAL, resume=False)
    assert begin.epoch == 0 and begin.weights is INITIAL and begin.optimizer == {}
    assert not (tmp_path / checkpoint.FILE).exists()


def test_nothing_to_resume_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checkpoint.begin(tmp_path, SCALED, INITIAL, resume=True).epoch == 0
    assert "Nothing to resume" in capsys.readouterr().out


def test_another_recipe_is_refused_with_what_differs(tmp_path: Path) -> None:
    write(tmp_path)
    other = replace(lookup("demo"), seed=3, batch=32).on(2)
    with pytest.raises(UserError, match=r"another recipe \(batch 64, global_batch 128, seed 0\)"):
        checkpoint.begin(tmp_path, other, INITIAL, resume=True)
    assert (tmp_path / checkpoint.FILE).exists()


@pytest.mark.parametrize("damage", [b"", b"no", bytes(100)])
def test_a_damaged_one_is_refused(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / checkpoint.FILE).write_bytes(damage)
    with pytest.raises(UserError, match="not a checkpoint"):
        checkpoint.begin(tmp_path, SCALED, INITIAL, resume=True)


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
    writer = checkpoint.Writer(tmp_path, SCALED)
    writer.save([ROW, ROW], 1.0, INITIAL, {})  # returns at once
    assert (tmp_path / checkpoint.FILE).read_bytes() == before
    may.set()
    writer.close()
    assert checkpoint.begin(tmp_path, SCALED, INITIAL, resume=True).epoch == 2


def test_a_disk_that_is_full_is_an_error_and_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    writer = checkpoint.Writer(tmp_path, SCALED)
    writer.save([ROW, ROW], 1.0, INITIAL, {})
    with pytest.raises(OSError, match="No space"):
        writer.close()
    assert checkpoint.begin(tmp_path, SCALED, INITIAL, resume=True).epoch == 1


def test_what_identifies_a_run_survives_json() -> None:
    assert checkpoint._about(SCALED) == json.loads(json.dumps(SCALED.as_record()))
