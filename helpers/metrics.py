"""The measure of a trained model: area under the ROC curve per finding, with its uncertainty."""

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.metrics import roc_auc_score

from data_prep import FINDINGS

RESAMPLES = 1000


def auc_table(
    labels: np.ndarray,
    scores: np.ndarray,
    findings: tuple[str, ...] = FINDINGS,
    *,
    seed: int = 0,
) -> pd.DataFrame:
    """AUC per finding with its 95 % interval.

    The interval is SciPy's percentile bootstrap over images, positives and negatives resampled
    apart (https://docs.scipy.org/doc/scipy/reference/generated/scipy.stats.bootstrap.html).

    Args:
        labels: (N, findings), 0 or 1.
        scores: (N, findings), logits or probabilities: only their order counts.

    Returns:
        One row a finding: finding, auc, low, high, positives, negatives, reason. Where only one
        class is present AUC is undefined: the row stays, auc is NaN and reason says why.
    """
    labels, scores = np.asarray(labels), np.asarray(scores)
    if labels.shape != scores.shape or labels.shape[1:] != (len(findings),):
        raise ValueError(
            f"labels {labels.shape} and scores {scores.shape} must both be (N, {len(findings)})"
        )
    if not np.isfinite(scores).all():
        raise ValueError("scores hold NaN or infinity: the training diverged")
    rows = [
        {"finding": finding, **_auc(labels[:, i], scores[:, i], seed)}
        for i, finding in enumerate(findings)
    ]
    return pd.DataFrame(rows)


def mean_auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Mean AUC over the findings where both classes are present; NaN where there is none."""
    columns = [i for i in range(labels.shape[1]) if 0 < labels[:, i].sum() < len(labels)]
    if not columns:
        return float("nan")
    return float(roc_auc_score(labels[:, columns], scores[:, columns], average="macro"))


def _auc(labels: np.ndarray, scores: np.ndarray, seed: int) -> dict[str, Any]:
    positive, negative = scores[labels == 1], scores[labels == 0]
    row: dict[str, Any] = {"auc": np.nan, "low": np.nan, "high": np.nan}
    row |= {"positives": len(positive), "negatives": len(negative), "reason": None}
    if len(positive) == 0 or len(negative) == 0:
        missing = "positive" if len(positive) == 0 else "negative"
        row["reason"] = f"not computable: no {missing} image in this part"
        return row
    row["auc"] = float(roc_auc_score(labels, scores))
    if min(len(positive), len(negative)) < 2:
        row["reason"] = "no interval: one image of a class cannot be resampled"
        return row
    interval = stats.bootstrap(
        (positive, negative),
        _mann_whitney,
        n_resamples=RESAMPLES,
        batch=max(1, 2_000_000 // len(scores)),  # keeps the resamples at some tens of MB
        vectorized=True,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    row["low"], row["high"] = float(interval.low), float(interval.high)
    return row


def _mann_whitney(positive: np.ndarray, negative: np.ndarray, axis: int = -1) -> np.ndarray:
    """AUC as the Mann-Whitney statistic, vectorised over resamples; ties count one half."""
    ranks = stats.rankdata(np.concatenate([positive, negative], axis=axis), axis=axis)
    count = positive.shape[axis]
    total = np.take(ranks, range(count), axis=axis).sum(axis=axis)
    return (total - count * (count + 1) / 2) / (count * negative.shape[axis])
