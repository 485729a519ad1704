"""Checkpoints: whole at every moment, and never taken for another run's."""

import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import records

from helpers import checkpoint, record
from helpers.checkpoint import Checkpoint
from helpers.devices import Devices
from helpers.errors import UserError
from helpers.recipe import lookup

INITIAL = {"w": np.zeros((2, 3), np.float32)}
ROW: dict[str, Any] = {"epoch": 1, "train_loss": 0.5, "valid_auc": None}


def run_in(folder: Path, **sections: Any) -> record.Run:
    """A run whose record says what it trains; ``sections`` add to the record's."""
    content = records.make()
    content["run"]["code"] = "1" * 64
    content["data"]["sha256"] = "2" * 64
    for name, fields in sections.items():
        content[name] |= fields
    return record.Run(folder, content)


def begin(folder: Path, *, resume: bool, **sections: Any) -> Checkpoint:
    return checkpoint.begin(run_in(folder, **sections), INITIAL, resume=resume)


def write(folder: Path, epochs: int = 1, **sections: Any) -> checkpoint.Writer:
    writer = checkpoint.Writer(begin(folder, resume=False, **sections))
    weights = {"w": np.arange(6, dtype=np.float32).reshape(3, 2).T}  # not contiguous
    optimizer = {"first/w": np.ones((2, 3), np.float32), "step": np.array(8)}
    writer.save([ROW | {"epoch": e + 1} for e in range(epochs)], 2.5, weights, optimizer)
    writer.close()
    return writer


def test_what_was_written_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, epochs=2)
    found = begin(tmp_path, resume=True)
    assert found.epoch == 2 and found.first_step == 2.5
    assert found.history == [ROW, ROW | {"epoch": 2}]
    assert found.weights.keys() == {"w"} and found.optimizer.keys() == {"first/w", "step"}
    assert np.array_equal(found.weights["w"], np.arange(6).reshape(3, 2).T)
    assert np.array_equal(found.optimizer["first/w"], np.ones((2, 3)))
    assert found.optimizer["step"].shape == () and found.optimizer["step"] == 8
    assert {path.name for path in tmp_path.iterdir()} == {checkpoint.FILE, record.FILE}
    path = tmp_path / checkpoint.FILE
    assert capsys.readouterr().out == f"Resumed after epoch 2 of 5, from {path}\n"
    assert found.as_record(0.25) == {"resumed_after": 2, "seconds": 0.25}


def test_training_begins_with_the_initial_weights_and_nothing_measured(tmp_path: Path) -> None:
    found = begin(tmp_path, resume=False)
    assert found.weights is INITIAL and found.folder == tmp_path
    assert (found.epoch, found.history, found.optimizer) == (0, [], {})
    assert math.isnan(found.first_step)
    assert found.as_record(1.5) == {"resumed_after": 0, "seconds": 1.5}


def test_without_resume_training_begins_anew_and_the_old_checkpoint_goes(tmp_path: Path) -> None:
    write(tmp_path)
    found = begin(tmp_path, resume=False)
    assert found.epoch == 0 and found.weights is INITIAL and found.optimizer == {}
    assert not (tmp_path / checkpoint.FILE).exists()


def test_nothing_to_resume_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert begin(tmp_path, resume=True).weights is INITIAL
    assert "Nothing to resume" in capsys.readouterr().out


def test_a_whole_run_leaves_no_checkpoint(tmp_path: Path) -> None:
    write(tmp_path)
    checkpoint.remove(tmp_path)
    assert not (tmp_path / checkpoint.FILE).exists()
    checkpoint.remove(tmp_path)  # nothing there is no error


def test_another_recipe_is_refused_with_what_differs(tmp_path: Path) -> None:
    write(tmp_path)
    other = {"seed": 3, "batch": 32, "global_batch": 64}
    with pytest.raises(UserError) as refused:
        begin(tmp_path, resume=True, recipe=other, data={"sha256": "3" * 64})
    assert str(refused.value) == (
        f"{tmp_path / checkpoint.FILE}: of a run with another recipe (batch 64, global_batch 128, "
        f"images {'2' * 64}, seed 0); set that again, or remove the file"
    )
    assert (tmp_path / checkpoint.FILE).exists()


def test_other_images_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(UserError, match="of a run on other images or labels; give it the same"):
        begin(tmp_path, resume=True, data={"sha256": "3" * 64})
    assert (tmp_path / checkpoint.FILE).exists()
    assert begin(tmp_path, resume=True).epoch == 1


def test_other_code_goes_on_and_that_is_said_and_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    assert not begin(tmp_path, resume=True).changed_code
    assert "The code has changed" not in capsys.readouterr().out
    found = begin(tmp_path, resume=True, run={"code": "4" * 64})
    assert "The code has changed since" in capsys.readouterr().out
    assert found.changed_code and found.epoch == 1
    assert found.as_record(0.0) == {"resumed_after": 1, "seconds": 0.0, "changed_code": True}


def test_a_real_record_identifies_its_run(tmp_path: Path) -> None:
    """As written by a notebook: what has no place in JSON, such as tuples, differs from nothing."""
    recipe = lookup("demo").on(2)
    run = record.start(
        tmp_path,
        notebook="PyTorch_MultiGPU",
        framework="PyTorch",
        kernel="pytorch",
        versions={},
        devices=Devices("cpu", ("a", "b")),
        recipe=recipe,
    )
    writer = checkpoint.Writer(checkpoint.begin(run, INITIAL, resume=False))
    writer.save([ROW], 1.0, INITIAL, {})
    writer.close()
    found = checkpoint.begin(run, INITIAL, resume=True)
    assert found.epoch == 1 and not found.changed_code
    assert found.code == run.content["run"]["code"]
    assert found.about["batch"] == recipe.recipe.batch
    run.fail(KeyboardInterrupt())


@pytest.mark.parametrize("damage", [b"", b"no", bytes(100)])
def test_a_damaged_one_is_refused(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / checkpoint.FILE).write_bytes(damage)
    with pytest.raises(UserError, match="not a checkpoint"):
        begin(tmp_path, resume=True)


@pytest.mark.parametrize("metadata", [None, {"other": "{}"}, {"said": "{"}])
def test_a_file_of_arrays_that_is_no_checkpoint_is_refused(
    tmp_path: Path, metadata: dict[str, str] | None
) -> None:
    checkpoint.save_file(INITIAL, tmp_path / checkpoint.FILE, metadata=metadata)
    with pytest.raises(UserError, match=r"not a checkpoint .*; remove it, or resume = False"):
        begin(tmp_path, resume=True)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / checkpoint.FILE).mkdir()
    with pytest.raises(UserError, match=r"not a checkpoint .*os error"):
        begin(tmp_path, resume=True)


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
    writer = checkpoint.Writer(begin(tmp_path, resume=True))
    writer.save([ROW, ROW], 1.0, INITIAL, {})  # returns at once
    assert (tmp_path / checkpoint.FILE).read_bytes() == before
    may.set()
    writer.close()
    assert begin(tmp_path, resume=True).epoch == 2


def test_a_disk_that_is_full_is_an_error_and_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    writer = checkpoint.Writer(begin(tmp_path, resume=True))
    writer.save([ROW, ROW], 1.0, INITIAL, {})
    with pytest.raises(OSError, match="No space"):
        writer.close()
    assert begin(tmp_path, resume=True).epoch == 1


def test_a_failure_is_told_at_the_next_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / checkpoint.FILE).mkdir()  # cannot be replaced
    writer = checkpoint.Writer(begin(tmp_path / "run", resume=False))
    monkeypatch.setattr(writer, "_path", tmp_path / checkpoint.FILE)
    writer.save([ROW], 1.0, INITIAL, {})
    with pytest.raises(OSError, match="directory"):
        writer.save([ROW, ROW], 1.0, INITIAL, {})
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    found = Checkpoint(INITIAL, tmp_path / "a" / "b", {"epochs": 5})
    writer = checkpoint.Writer(found)
    writer.save([ROW], 1.0, INITIAL, {})
    writer.close()
    writer.close()  # twice is no error
    assert (tmp_path / "a" / "b" / checkpoint.FILE).exists()


def test_what_holds_training_up_is_added_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of our own: the wait for the checkpoint before."""
    now = [100.0]
    writer = checkpoint.Writer(begin(tmp_path, resume=False))
    assert writer.seconds == 0.0
    close = writer.close

    def takes_two_seconds() -> None:
        close()
        now[0] += 2.0

    monkeypatch.setattr(checkpoint.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(writer, "close", takes_two_seconds)
    writer.save([ROW], 1.0, INITIAL, {})
    writer.save([ROW, ROW], 1.0, INITIAL, {})
    close()
    assert writer.seconds == 4.0
