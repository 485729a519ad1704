"""What a run prints while it trains."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.training import heartbeat
from helpers.training.epoch_lines import EpochLines, Within


@pytest.mark.parametrize("watched", [True, False])
def test_within_an_epoch_one_line_is_replaced(
    watched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """In a batch the runner shows it; the log of a run by hand would be full of it."""
    monkeypatch.delenv(heartbeat.VARIABLE, raising=False)
    if watched:
        monkeypatch.setenv(heartbeat.VARIABLE, str(tmp_path / heartbeat.FILE))
    recipe: Any = SimpleNamespace(recipe=SimpleNamespace(epochs=8), steps=lambda count: 10)
    lines = EpochLines(recipe, 100, "multiclass")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now - 30)
    lines.begin(2)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    first = "Epoch 3 of 8: compiling, or in the first step, for 12 s"
    then = "Epoch 3 of 8: step 5 of 10, 5:30 left"
    lines.heard(Within(20, 12.3))
    lines.heard(Within(25, 30.0))
    if watched:
        assert capsys.readouterr().out == ""
        assert (tmp_path / heartbeat.MOVING).read_text() == then
        return
    assert capsys.readouterr().out == first + "\r" + then.ljust(len(first))
    row = {"epoch": 3, "train_loss": 1.0, "valid_loss": 1.0, "valid_top1": 0.5, "valid_top5": 0.9}
    lines.heard(row | {"images_per_second": 9.0})
    _, replaced, rest = capsys.readouterr().out.rpartition("\r")
    assert replaced and rest.startswith("Epoch 3 of 8: loss")
