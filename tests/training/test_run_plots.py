"""What a notebook shows of its own run."""

import matplotlib
import numpy as np
import pandas as pd
import records

import data_prep
from helpers.record import tasks
from helpers.training import run_plots


def test_learning_and_roc_curves_say_what_the_record_says() -> None:
    history = [
        {"epoch": e, "train_loss": 1 / e, "valid_loss": 2 / e, "valid_auc": None} for e in (1, 2)
    ]
    left, right = run_plots.learning(history, tasks.MULTILABEL).axes
    assert [np.asarray(line.get_ydata()).tolist() for line in left.lines] == [[1, 0.5], [2, 1]]
    assert np.isnan(np.asarray(right.lines[0].get_ydata(), float)).all()

    labels = np.zeros((60, 14), np.float32)
    labels[:30, :2] = 1
    scores = np.random.default_rng(0).random((60, 14))
    scores[:30, 0] += 1  # distinguished without a fault
    split = pd.DataFrame(labels, columns=list(data_prep.FINDINGS))
    split["group"], split["image"] = range(60), [f"{n}.png" for n in range(60)]
    result = records.evaluate_findings(split, scores)
    (axes,) = run_plots.roc(labels, scores, result).axes
    best = next(line for line in axes.lines if str(line.get_label()).endswith("1.00"))
    assert str(best.get_label()).startswith(data_prep.FINDINGS[0].replace("_", " "))
    assert matplotlib.colors.to_hex(best.get_color()) == run_plots.VALIDATION.lower()
    assert len(axes.lines) == 5  # two findings with enough images, each named, and chance
