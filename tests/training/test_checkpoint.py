"""Checkpoints: whole at every moment, and never taken for another run's."""

import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import records
from safetensors.numpy import save_file

from helpers import record
from helpers.errors import UserError
from helpers.networks import weights
from helpers.recipe import lookup
from helpers.training import checkpoint
from helpers.training.checkpoint import Checkpoint

INITIAL = {"w": np.zeros((2, 3), np.float32), "running_mean": np.zeros(3, np.float32)}
EPOCHS = lookup("demo").epochs
ADAM = {"first/w": np.ones((2, 3)), "second/w": np.ones((2, 3)), "step": np.array(8)}
ROW: dict[str, Any] = records.make()["epochs"][0] | {"valid_auc": None}


def run_in(folder: Path, **sections: Any) -> record.Run:
    """A run whose record says what it trains; ``sections`` add to the record's."""
    content: Any = records.make()
    content["run"] |= {"code": "1" * 64, "id": "5" * 16}
    content["data"]["sha256"] = "2" * 64
    for name, fields in sections.items():
        content[name] |= fields
    return record.Run(folder, content, lambda: str(content["run"]["code"]))


def begin(folder: Path, *, resume: bool, **sections: Any) -> Checkpoint:
    return checkpoint.begin(run_in(folder, **sections), INITIAL, resume=resume)


def write(folder: Path, epochs: int = 1, **sections: Any) -> None:
    start = begin(folder, resume=False, **sections)
    weights = INITIAL | {"w": np.arange(6, dtype=np.float32).reshape(3, 2).T}  # not contiguous
    checkpoint.save(start, [ROW | {"epoch": e + 1} for e in range(epochs)], 2.5, weights, ADAM)


def test_what_was_written_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, epochs=2)
    found = begin(tmp_path, resume=True)
    assert found.epoch == 2 and found.first_step == 2.5
    assert found.history == [ROW, ROW | {"epoch": 2}]
    assert found.weights.keys() == INITIAL.keys() and found.optimizer.keys() == ADAM.keys()
    assert np.array_equal(found.weights["w"], np.arange(6).reshape(3, 2).T)
    assert np.array_equal(found.optimizer["first/w"], np.ones((2, 3)))
    assert found.optimizer["step"].shape == () and found.optimizer["step"] == 8
    assert {path.name for path in tmp_path.iterdir()} == {checkpoint.FILE, record.FILE}
    path = tmp_path / checkpoint.FILE
    assert capsys.readouterr().out == f"Resumed after epoch 2 of {EPOCHS}, from {path}\n"
    assert found.as_record() == {"resumed_after": 2, "restarts": [2]}


def test_training_begins_anew_with_nothing_measured_and_the_old_checkpoint_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    found = begin(tmp_path, resume=False)
    assert found.weights is INITIAL and found.folder == tmp_path
    assert (found.epoch, found.history, found.optimizer) == (0, [], {})
    assert math.isnan(found.first_step)
    assert found.as_record() == {"resumed_after": 0}
    assert not (tmp_path / checkpoint.FILE).exists()
    assert begin(tmp_path, resume=True).weights is INITIAL
    assert "Nothing to resume" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"recipe": {"seed": 3, "batch_size": 32}}, "batch_size 64, seed 0"),
        ({"data": {"sha256": "3" * 64}}, f"images {'2' * 64}"),
        ({"framework": {"name": "Keras", "kernel": "horovod"}}, "framework PyTorch in kernel py"),
    ],
)
def test_another_run_is_refused_with_what_differs(
    tmp_path: Path, other: dict[str, Any], said: str
) -> None:
    """Its weights may fit, but a record is of one recipe, the same images and one framework."""
    write(tmp_path)
    with pytest.raises(UserError, match=rf"belongs to another run \({said}"):
        begin(tmp_path, resume=True, **other)
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
    said = found.as_record()
    assert said.pop("restarts") == [1]
    assert said == {"resumed_after": 1, "changed_code": True}


@pytest.mark.parametrize("said", [{}, {"said": "{}"}, {"said": "[]"}, {"said": "nothing"}])
def test_a_file_that_does_not_say_how_far_it_is_has_nothing_done(
    tmp_path: Path, said: dict[str, str]
) -> None:
    save_file({"weight": np.zeros(1)}, tmp_path / checkpoint.FILE, said)
    assert checkpoint.epochs_in(tmp_path) == 0


def test_a_real_record_identifies_its_run(tmp_path: Path) -> None:
    """As written by a notebook: what has no place in JSON, such as tuples, differs from nothing."""
    run = records.started(tmp_path)
    run.add("data", records.make("PyTorch")["data"])  # as each has before it trains
    start = checkpoint.begin(run, INITIAL, resume=False)
    checkpoint.save(start, [ROW], 1.0, INITIAL, ADAM)
    found = checkpoint.begin(run, INITIAL, resume=True)
    assert found.epoch == 1 and not found.changed_code
    assert found.code == run.content["run"]["code"]
    assert found.about["batch_size"] == lookup("demo").batch_size
    run.fail(KeyboardInterrupt())


class Executed:
    """What a pickle can be made to do when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("executed",)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "zero bytes": lambda path: path.write_bytes(b""),
    "its last byte missing": lambda path: os.truncate(path, path.stat().st_size - 1),
    "a pickle that executes code": lambda path: path.write_bytes(pickle.dumps(Executed())),
    "arrays that say nothing": lambda path: save_file(INITIAL, path),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_one_that_cannot_be_read_is_an_error_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    DAMAGE[name](tmp_path / checkpoint.FILE)
    with pytest.raises(UserError, match="remove it to train from the beginning"):
        begin(tmp_path, resume=True)
    assert (tmp_path / checkpoint.FILE).exists() and not (tmp_path / "executed").exists()


def test_it_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = records.disk(monkeypatch)
    write(tmp_path)
    new = done[-3].removeprefix("sync ")
    assert done[-2:] == [f"rename {new} {checkpoint.FILE}", f"sync {tmp_path.name}"]


def test_a_disk_that_is_full_is_an_error_and_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(weights, "write_atomic", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save(begin(tmp_path, resume=True), [ROW, ROW], 1.0, INITIAL, ADAM)
    assert begin(tmp_path, resume=True).epoch == 1
