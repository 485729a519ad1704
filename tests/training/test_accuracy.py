"""Top-1 and top-5: against scikit-learn, plain, slow implementations and known truths."""

import hashlib
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, confusion_matrix, top_k_accuracy_score

from helpers.record import tasks
from helpers.training import metrics


def evaluate(
    targets: Any, scores: np.ndarray, groups: Any = None, names: Any = None
) -> dict[str, Any]:
    return metrics.evaluate(
        np.asarray(targets),
        scores,
        range(len(targets)) if groups is None else groups,
        [f"class {n}" for n in range(scores.shape[1])] if names is None else names,
        hashlib.sha256(),
    )


def drawn(images: int = 500, classes: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Classes, and scores that name about half of them rightly."""
    random = np.random.default_rng(seed)
    targets = random.integers(0, classes, images)
    return targets, random.normal(size=(images, classes)) + 1.5 * np.eye(classes)[targets]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(3, 9), st.integers(1, 5))
def test_both_shares_are_scikit_learns(seed: int, images: int, classes: int, levels: int) -> None:
    """Few levels make ties."""
    random = np.random.default_rng(seed)
    targets = random.integers(0, classes, images)
    scores = random.integers(0, levels, (images, classes)).astype(float)
    result, every = evaluate(targets, scores), range(classes)
    found = metrics.of_epoch(targets, scores)
    shares = ((1, result["top1"], "valid_top1"), (5, result["top5"], "valid_top5"))
    for guesses, share, name in shares:
        if guesses < classes and not (guesses == 5 and classes <= tasks.GUESSES):
            right = top_k_accuracy_score(targets, scores, k=guesses, labels=every)
            assert share == pytest.approx(right) == pytest.approx(found[name])
    taken = classes - 1 - scores[:, ::-1].argmax(axis=1)  # the last of equal ones
    assert result["top1"] == pytest.approx(accuracy_score(targets, taken))
    matrix = confusion_matrix(targets, taken, labels=every)
    table = pd.DataFrame(result["classes"])
    assert (table["top1"] * table["images"]).fillna(0).tolist() == pytest.approx(matrix.diagonal())
    assert table["images"].tolist() == matrix.sum(axis=1).tolist()


def test_every_resample_is_the_share_of_the_drawn_groups_images() -> None:
    targets, scores = drawn(60, 7)
    groups = np.random.default_rng(1).integers(0, 15, 60)
    result = evaluate(targets, scores, groups)
    right = scores.argmax(axis=1) == targets
    among = (np.argsort(-scores, axis=1)[:, :5] == targets[:, None]).any(axis=1)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    top1, top5, of_class = [], [], []
    for counts in metrics.draws(np.arange(len(members)), hashlib.sha256()):
        often = zip(members, counts, strict=True)
        rows = np.concatenate([np.repeat(those, number) for those, number in often])
        top1.append(right[rows].mean())
        top5.append(among[rows].mean())
        those = rows[targets[rows] == 3]
        of_class.append(right[those].mean() if len(those) else np.nan)
    np.testing.assert_allclose(result["resamples"], top1, atol=1e-6)
    for name, plain in (("top1", top1), ("top5", top5)):
        share = [result[f"{name}_low"], result[f"{name}_high"]]
        np.testing.assert_allclose(share, np.quantile(plain, [0.025, 0.975]), atol=1e-12)
    ends = np.nanquantile(of_class, [0.025, 0.975])
    row = result["classes"][3]
    np.testing.assert_allclose([row["low"], row["high"]], ends)


def test_top_5_of_five_classes_is_none_and_of_six_is_one() -> None:
    few, more = evaluate(*drawn(50, 5)), evaluate(*drawn(50, 6))
    for field in tasks.TOP5.tested:
        assert np.isnan(few[field]) and not np.isnan(more[field])
    epoch = metrics.of_epoch(*drawn(50, 5))
    assert np.isnan(epoch["valid_top5"])
    assert tasks.MULTICLASS.said(epoch) == f"top-1 {100 * epoch['valid_top1']:.1f} %"


def test_a_class_without_images_and_one_of_a_single_group_have_no_interval() -> None:
    targets = np.array([0, 0, 1, 1, 1, 2])
    scores = np.eye(4)[[0, 1, 1, 1, 2, 2]]
    found = evaluate(targets, scores, [0, 1, 2, 2, 2, 3])["classes"]
    table = pd.DataFrame(found).set_index("class")
    assert table["top1"].tolist()[:3] == [0.5, pytest.approx(2 / 3), 1.0]
    assert np.isnan(table.loc["class 3", "top1"])
    assert table["low"].notna().tolist() == [True, False, False, False]
    alone = evaluate(targets, scores, [0] * 6)
    assert np.isfinite(alone["top1"]) and np.isnan(alone["top1_low"])


@pytest.mark.parametrize("right", [0, 30])
def test_a_share_of_nothing_or_all_has_an_interval_all_the_same(right: int) -> None:
    """Every draw has that share; an interval from 1 to 1 would claim that none can be wrong."""
    scores = np.tile(np.eye(2)[0 if right else 1], (30, 1))
    found = evaluate(np.zeros(30, int), scores, list(range(30)))
    value, low, high = (found[field] for field in tasks.TOP1.tested)
    assert value == right / 30 and low <= value <= high
    # 1 - 0.025 ** (1 / 30), by hand
    assert high - low == pytest.approx(0.11570, abs=1e-5)
    row = found["classes"][0]
    assert (row["low"], row["high"]) == (low, high)


def test_the_sample_is_of_the_images_whatever_their_scores() -> None:
    targets, scores = drawn(60)
    first = evaluate(targets, scores)
    assert evaluate(targets, -scores)["sample"] == first["sample"]  # whatever the scores
    assert evaluate(targets, scores, np.arange(60) // 2)["sample"] != first["sample"]


def test_what_is_no_score_is_refused() -> None:
    targets, scores = drawn()
    with pytest.raises(ValueError, match="are not"):
        evaluate(targets, scores[:, :3], names=list("abcd"))
    scores[0, 0] = np.nan
    for refuses in (evaluate, metrics.of_epoch):
        with pytest.raises(ValueError, match="diverged"):
            refuses(targets, scores)
