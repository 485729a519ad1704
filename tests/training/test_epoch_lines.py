"""What a run prints while it trains."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.training import epoch_lines
from helpers.training.epoch_lines import EpochLines


@pytest.mark.parametrize("watched", [True, False])
def test_within_an_epoch_one_line_is_replaced(
    watched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """In a batch the runner shows it; the log of a run by hand would be full of it."""
    monkeypatch.delenv(epoch_lines.VARIABLE, raising=False)
    if watched:
        monkeypatch.setenv(epoch_lines.VARIABLE, str(tmp_path / epoch_lines.FILE))
    recipe: Any = SimpleNamespace(epochs=8, steps=10, task="multiclass")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now - 30)
    lines = EpochLines(recipe, 2)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    first, then = "Epoch 3 of 8: first step", "Epoch 3 of 8: step 5 of 10, 5:30 left"
    lines.heard(20)
    lines.heard(25)
    if watched:
        assert capsys.readouterr().out == ""
        assert (tmp_path / epoch_lines.MOVING).read_text() == then
        return
    assert capsys.readouterr().out == first + "\r" + then.ljust(len(first))
    row = {"epoch": 3, "train_loss": 1.0, "valid_loss": 1.0, "valid_top1": 0.5, "valid_top5": 0.9}
    lines.heard(row | {"images_per_second": 9.0})
    _, replaced, rest = capsys.readouterr().out.rpartition("\r")
    assert replaced and rest.startswith("Epoch 3 of 8: loss")
