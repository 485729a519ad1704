"""A notebook's tables and its chart: the epochs in words, and at the end what was measured."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import records

from helpers.record import tasks
from helpers.training import showing


def test_the_summary_has_the_numbers_of_the_record() -> None:
    content = records.make("PyTorch")
    said = showing.summary(content).iloc[:, 0]
    rate = content["synthetic"]["images_per_second"]
    assert said["images/s, synthetic"].startswith(f"{rate:,.0f} (")
    assert f"{content['test']['mean_auc']:.3f}" in said["mean test AUC"]
    assert "pass" in said["fairness check"]


def test_a_tests_metrics_are_shown_with_their_intervals(capsys: pytest.CaptureFixture[str]) -> None:
    content = records.make("PyTorch")["test"]
    run: Any = SimpleNamespace(recipe=SimpleNamespace(task="multilabel"))
    showing.tested(run, content)
    said = capsys.readouterr().out
    mean, low, high = (f"{content[f'mean_{end}']:.3f}" for end in ("auc", "low", "high"))
    assert f"Mean test AUC {mean} (95 % interval {low} to {high})" in said
    assert content["findings"][0]["finding"] in said


def test_learning_curves_say_what_the_record_says() -> None:
    history = [
        {"epoch": e, "train_loss": 1 / e, "valid_loss": 2 / e, "valid_auc": None} for e in (1, 2)
    ]
    left, right = showing.learning(history, tasks.MULTILABEL).axes
    assert [np.asarray(line.get_ydata()).tolist() for line in left.lines] == [[1, 0.5], [2, 1]]
    assert np.isnan(np.asarray(right.lines[0].get_ydata(), float)).all()
