import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from helpers.metrics import auc_table, mean_auc

TWO = ("Mass", "Hernia")


def drawn(images: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = (random.random((images, 2)) < 0.2).astype(np.uint8)
    return labels, random.normal(size=(images, 2)) + labels


def test_auc_is_scikit_learns_and_inside_its_interval() -> None:
    labels, scores = drawn()
    table = auc_table(labels, scores, TWO)
    for i, row in table.iterrows():
        assert row["auc"] == pytest.approx(roc_auc_score(labels[:, i], scores[:, i]))
        assert 0.5 < row["low"] < row["auc"] < row["high"] < 1
        assert row["positives"] + row["negatives"] == 400


def test_interval_covers_the_true_value_about_as_often_as_it_says() -> None:
    # Normal scores one deviation apart: AUC = Phi(1/sqrt(2)) = 0.760.
    covered = 0
    for seed in range(40):
        low, high = auc_table(*drawn(200, seed), TWO).loc[0, ["low", "high"]]
        covered += low < 0.7602 < high
    assert 33 <= covered <= 40


def test_narrower_with_more_images() -> None:
    small, large = (auc_table(*drawn(n), TWO).loc[0] for n in (200, 3200))
    assert (large["high"] - large["low"]) < 0.5 * (small["high"] - small["low"])


@pytest.mark.parametrize("value, missing", [(0, "positive"), (1, "negative")])
def test_one_class_is_reported_not_dropped(value: int, missing: str) -> None:
    labels, scores = drawn()
    labels[:, 1] = value
    table = auc_table(labels, scores, TWO)
    assert list(table["finding"]) == list(TWO)
    assert np.isnan(table.loc[1, "auc"])
    assert f"no {missing} image" in table.loc[1, "reason"]
    assert mean_auc(labels, scores) == pytest.approx(table.loc[0, "auc"])


def test_single_positive_has_no_interval() -> None:
    labels, scores = drawn()
    labels[:, 0] = 0
    labels[3, 0] = 1
    row = auc_table(labels, scores, TWO).loc[0]
    assert np.isfinite(row["auc"]) and np.isnan(row["low"])
    assert "no interval" in row["reason"]


def test_ties_count_half() -> None:
    labels = np.array([[0], [0], [1], [1], [0], [1]])
    table = auc_table(labels, np.zeros((6, 1)), ("Mass",))
    assert table.loc[0, ["auc", "low", "high"]].tolist() == [0.5, 0.5, 0.5]


def test_diverged_scores_are_refused() -> None:
    labels, scores = drawn()
    scores[0, 0] = np.nan
    with pytest.raises(ValueError, match="diverged"):
        auc_table(labels, scores, TWO)
    with pytest.raises(ValueError, match="must both be"):
        auc_table(labels[:, :1], scores, TWO)
