"""AUC, its mean and their intervals: against plain, slow implementations and known truths."""

import hashlib
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import evaluate_findings as evaluate
from sklearn.metrics import roc_auc_score

from data_prep import FINDINGS
from helpers.training import metrics
from helpers.training.metrics import FEWEST


def mean_auc(labels: np.ndarray, scores: np.ndarray) -> float:
    return metrics.of_epoch(labels, scores)["valid_auc"]


def drawn(
    images: int = 400, seed: int = 0, *, patients: int | None = None, rate: float = 0.2
) -> tuple[pd.DataFrame, np.ndarray]:
    """A test split and scores whose true AUC is Phi(1/sqrt(2)) = 0.760 for every finding."""
    random = np.random.default_rng(seed)
    labels = (random.random((images, 14)) < rate).astype(np.uint8)
    patient = random.integers(1, (patients or images) + 1, images)
    return split(labels, patient), random.normal(size=(images, 14)) + labels


def split(labels: Any, patients: Any) -> pd.DataFrame:
    found = pd.DataFrame(np.asarray(labels, np.uint8), columns=list(FINDINGS))
    found.insert(0, "group", patients)
    found.insert(0, "image", [f"{number:08d}.png" for number in range(len(found))])
    return found


def with_positives(finding: str, count: int, images: int = 400) -> tuple[pd.DataFrame, np.ndarray]:
    """As :func:`drawn`, with that many positives of a finding, each another patient's."""
    found, scores = drawn(images)
    found["group"] = np.arange(images)
    found[finding] = (np.arange(images) < count).astype(np.uint8)
    return found, scores


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.integers(1, 20), st.integers(1, 9))
def test_every_resample_is_scikit_learns_auc_with_the_patients_weights(
    seed: int, images: int, patients: int, levels: int
) -> None:
    """Few levels make ties; few images make resamples without a class."""
    random = np.random.default_rng(seed)
    found = split(random.random((images, 14)) < 0.3, random.integers(0, patients, images))
    scores = random.integers(0, levels, (images, 14)).astype(float)
    labels = found[list(FINDINGS)].to_numpy()
    of = np.unique(found["group"], return_inverse=True)[1]
    result = evaluate(found, scores)
    for i, often in zip(range(3), metrics.draws(of, hashlib.sha256()), strict=False):
        plain = [slow_auc(labels[:, j], scores[:, j], often) for j in range(14)]
        chosen = [plain[FINDINGS.index(name)] for name in result["in_mean"]]
        mean = pd.Series(chosen, dtype=float).mean()  # without those that the resample lacks
        np.testing.assert_allclose(result["resamples"][i], mean, atol=1e-6)
    whole = [slow_auc(labels[:, j], scores[:, j], np.ones(images)) for j in range(14)]
    np.testing.assert_allclose([row["auc"] for row in result["findings"]], whole, atol=1e-12)
    np.testing.assert_allclose(result["mean_auc"], mean_auc(labels, scores), atol=1e-12)


def slow_auc(labels: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> float:
    there = weights > 0
    if len(np.unique(labels[there])) < 2:
        return float("nan")
    return float(roc_auc_score(labels[there], scores[there], sample_weight=weights[there]))


def test_a_resample_is_of_whole_patients_as_many_as_there_are() -> None:
    counts = np.stack(list(metrics.draws(np.arange(7), hashlib.sha256())))
    assert counts.shape == (metrics.RESAMPLES, 7)
    assert (counts.sum(axis=1) == 7).all()
    assert abs(counts.mean(axis=0) - 1).max() < 0.2  # nobody is favoured
    pairs = metrics.draws(np.arange(7).repeat(2), hashlib.sha256())
    assert (np.stack(list(pairs)) == counts.repeat(2, axis=1)).all()
    assert counts[:3].tolist() == [
        [2, 2, 0, 0, 1, 1, 1], [0, 0, 2, 3, 2, 0, 0], [2, 2, 2, 0, 0, 0, 1],
    ]  # fmt: skip  # on every machine and with every NumPy, or old records no longer pair


def test_an_interval_holds_the_middle_95_percent_of_the_resamples() -> None:
    found, scores = drawn(patients=150)
    result = evaluate(found, scores)
    table, middle = pd.DataFrame(result["findings"]), [0.025, 0.975]
    assert list(table["finding"]) == list(FINDINGS) == result["in_mean"]
    assert (table["positives"] + table["negatives"] == 400).all() and table["reason"].isna().all()
    ends = [result["mean_low"], result["mean_high"]]
    assert ends == pytest.approx(np.quantile(result["resamples"], middle), abs=1e-6)
    of = np.unique(found["group"], return_inverse=True)[1]
    mass, score = found["Mass"].to_numpy(), scores[:, FINDINGS.index("Mass")]
    draws = metrics.draws(of, hashlib.sha256())
    each = [roc_auc_score(mass, score, sample_weight=often) for often in draws]
    row = table.set_index("finding").loc["Mass"]
    assert [row["low"], row["high"]] == pytest.approx(np.quantile(each, middle))


@pytest.mark.parametrize("value, missing", [(0, "positive"), (1, "negative")])
def test_one_class_is_reported_not_dropped(value: int, missing: str) -> None:
    found, scores = drawn()
    found["Hernia"] = value
    result = evaluate(found, scores)
    row = result["findings"][-1]
    assert row["finding"] == "Hernia" and np.isnan(row["auc"]) and np.isnan(row["low"])
    assert f"no {missing} image" in row["reason"]
    assert result["in_mean"] == [*FINDINGS[:-1]]
    assert result["mean_auc"] == pytest.approx(pd.DataFrame(result["findings"])["auc"].mean())
    assert mean_auc(found[list(FINDINGS)].to_numpy(), scores) == pytest.approx(result["mean_auc"])


@pytest.mark.parametrize("count, counts", [(FEWEST - 1, False), (FEWEST, True)])
@pytest.mark.parametrize("flip", [False, True])
def test_a_finding_with_few_images_of_a_class_is_shown_but_not_in_the_mean(
    count: int, counts: bool, flip: bool
) -> None:
    found, scores = with_positives("Hernia", count)
    if flip:
        found["Hernia"] = 1 - found["Hernia"]
    result = evaluate(found, scores)
    table = pd.DataFrame(result["findings"])
    row, rest = table.iloc[-1], table["auc"][:-1].mean()
    assert np.isfinite(row["auc"])
    assert ("Hernia" in result["in_mean"]) == counts
    assert (row["reason"] is None) == counts
    mean = table["auc"].mean() if counts else rest
    assert result["mean_auc"] == pytest.approx(mean)
    assert mean_auc(found[list(FINDINGS)].to_numpy(), scores) == pytest.approx(mean)


def test_of_one_patient_there_is_no_interval() -> None:
    found, scores = with_positives("Hernia", 8)
    found.loc[found["Hernia"] == 1, "group"] = 0
    row = evaluate(found, scores)["findings"][-1]
    assert np.isfinite(row["auc"]) and np.isnan(row["low"]) and np.isnan(row["high"])
    assert row["reason"] == "no interval: all positive images are of one patient"
    result = evaluate(*drawn(patients=1))
    assert np.isfinite(result["mean_auc"])
    assert np.isnan(result["mean_low"]) and np.isnan(result["mean_high"])
    assert all(np.isnan(row["low"]) for row in result["findings"])


def test_no_finding_has_images_enough() -> None:
    result = evaluate(*drawn(8))
    assert np.isnan(result["mean_auc"]) and np.isnan(result["mean_low"])
    assert result["in_mean"] == []
    assert np.isnan(mean_auc(np.zeros((8, 14)), np.zeros((8, 14))))


def test_the_sample_is_the_same_for_the_same_images_only(monkeypatch: pytest.MonkeyPatch) -> None:
    found, scores = drawn(60)
    first = evaluate(found, scores)
    mixed = np.random.default_rng(1).permutation(60)
    again = evaluate(found.iloc[mixed].reset_index(drop=True), -scores[mixed])
    assert again["sample"] == first["sample"]  # in whatever order, whatever the scores
    np.testing.assert_allclose(
        again["resamples"], 1 - first["resamples"], atol=2e-6
    )  # and resample by resample
    # As many patients as before, so that the draws are the same.
    alone = found.drop_duplicates("group", keep=False)["group"].iloc[:2].to_list()
    swapped = found.assign(group=found["group"].replace(dict(zip(alone, alone[::-1], strict=True))))
    assert evaluate(swapped, scores)["sample"] != first["sample"]
    for column, value in (("image", "x.png"), ("Mass", 1 - found["Mass"][0])):
        other = found.copy()
        other.loc[0, column] = value
        assert evaluate(other, scores)["sample"] != first["sample"], column
    for constant in ("FEWEST", "RESAMPLES"):
        with monkeypatch.context() as patch:
            patch.setattr(metrics, constant, 12)
            assert evaluate(found, scores)["sample"] != first["sample"], constant


def test_diverged_scores_are_refused() -> None:
    found, scores = drawn()
    labels = found[list(FINDINGS)].to_numpy()
    broken = np.where(np.arange(14) == 0, np.nan, scores)
    for wrong, said in ((scores[:, :1], "must have one shape|are not"), (broken, "diverged")):
        with pytest.raises(ValueError, match=said):
            evaluate(found, wrong)
        with pytest.raises(ValueError, match=said):
            mean_auc(labels, wrong)


def test_a_resample_without_a_class_of_a_finding_is_the_mean_of_the_others() -> None:
    """Two patients have all positives: in an eighth of the draws there is neither."""
    found, scores = with_positives("Hernia", 6)
    found.loc[found["Hernia"] == 1, "group"] = [0, 0, 0, 1, 1, 1]
    result = evaluate(found, scores)
    assert result["in_mean"] == [*FINDINGS]
    assert np.isfinite(result["resamples"]).all()
