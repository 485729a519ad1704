"""The area under the ROC curve of each finding, with its uncertainty."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from helpers.training import resampling

FEWEST = 5
"""A finding with fewer positive (or negative) images in a part is shown, but not in the mean."""


@dataclass(frozen=True)
class Evaluation:
    """The AUC of a test part; its text gives the mean and explains it.

    ``table`` has one row a finding: finding, auc, low, high, positives, negatives, reason; auc or
    its interval is NaN where it cannot be had, and reason says why, or why it is not in the mean.
    ``mean`` is over the findings ``in_mean``, NaN where there are none. Intervals hold 95 % of
    ``resampling.RESAMPLES`` resamples of the part's ``patients``; ``resamples`` are the mean's, in
    order. ``sample`` names them: where it is equal in two runs, their resamples are of the same
    images.
    """

    table: pd.DataFrame
    mean: float
    low: float
    high: float
    in_mean: tuple[str, ...]
    patients: int
    resamples: np.ndarray
    sample: str

    def __str__(self) -> str:
        images = int(self.table.loc[0, ["positives", "negatives"]].sum())
        part = f"{images} images of {self.patients} patients"
        if not self.in_mean:
            few = f"{FEWEST} positive and {FEWEST} negative images"
            return f"No mean AUC: no finding has {few} in {part}."
        interval = "no interval"
        if np.isfinite(self.low):
            interval = f"95 % interval {self.low:.3f} to {self.high:.3f}"
        lines = [f"Mean AUC {self.mean:.3f} ({interval}) of {len(self.in_mean)} findings, {part}."]
        few = self.table[~self.table["finding"].isin(self.in_mean)]
        if not few.empty:
            listed = ", ".join(f"{row.finding} ({row.positives})" for row in few.itertuples())
            lines.append(
                f"Not in the mean, because of too few positive (or negative) images: {listed}."
            )
        lines.append(resampling.said("patients"))
        return "\n".join(lines)

    def as_record(self) -> dict[str, Any]:
        """What the record's section ``test`` says of it."""
        rows = self.table.astype(object).where(self.table.notna(), None)
        return {
            "mean_auc": self.mean,
            "mean_low": self.low,
            "mean_high": self.high,
            "in_mean": self.in_mean,
            "findings": rows.to_dict("records"),
            "patients": self.patients,
            "resamples": self.resamples.round(6),
            "sample": self.sample,
        }


def evaluate(
    labels: np.ndarray,
    scores: np.ndarray,
    patients: Sequence[Any],
    names: Sequence[str],
    sample: Any,
) -> Evaluation:
    """AUC per finding and their mean, with 95 % intervals from a bootstrap over patients.

    A patient's images resemble each other, so whole patients are drawn, as many as there are and
    with replacement. All findings and the mean are computed from the same draws; a draw without
    one of a finding's classes goes into the mean without that finding. The interval is the
    percentile one (Efron and Tibshirani, "An Introduction to the Bootstrap", chapter 13).

    Args:
        labels: (images, findings), 0 or 1.
        scores: (images, findings), logits or probabilities: only their order counts.
        patients: whose each image is.
        names: of the findings.
        sample: a hash of which images these are, to be updated.

    Raises:
        ValueError: the shapes do not fit, or a score is NaN or infinite.
    """
    _check(labels, scores)
    numbers, of_patient = np.unique(np.asarray(patients), return_inverse=True)
    rankings = [_rank(*column, of_patient) for column in zip(labels.T, scores.T, strict=True)]
    counted = _counted(labels)
    sample.update(f"{counted.astype(int).tolist()}\n".encode())
    batches = []
    for drawn in resampling.draws(len(numbers)):
        batches.append(np.stack([_auc(*ranking, drawn) for ranking in rankings]))
        sample.update(drawn.T.astype("<i4").tobytes())
    resampled = pd.DataFrame(np.concatenate(batches, axis=1).T, columns=list(names))

    whole = np.ones((len(numbers), 1))
    low, high = resampling.interval(resampled)
    rows: list[dict[str, Any]] = []
    for finding, column, ranking in zip(names, labels.T, rankings, strict=True):
        images = {"positive": (column == 1).sum(), "negative": (column == 0).sum()}
        of = {"positive": of_patient[column == 1], "negative": of_patient[column == 0]}
        alone = [name for name, those in of.items() if len(np.unique(those)) == 1]
        rows.append(
            {
                "finding": finding,
                "auc": float(_auc(*ranking, whole)[0]),
                "low": np.nan if alone else low[finding],
                "high": np.nan if alone else high[finding],
                "positives": int(images["positive"]),
                "negatives": int(images["negative"]),
                "reason": _reason(images, alone),
            }
        )
    table = pd.DataFrame(rows)
    means = resampled.loc[:, counted].mean(axis=1)
    ends = resampling.interval(means) if len(numbers) > 1 else (np.nan, np.nan)
    return Evaluation(
        table,
        mean=float(table["auc"][counted].mean()),
        low=float(ends[0]),
        high=float(ends[1]),
        in_mean=tuple(table["finding"][counted]),
        patients=len(numbers),
        resamples=means.to_numpy(),
        sample=sample.hexdigest()[:32],
    )


def of_epoch(labels: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """What an epoch's row in the record says of the validation part."""
    return {"valid_auc": mean_auc(labels, scores)}


def mean_auc(labels: np.ndarray, scores: np.ndarray) -> float:
    """Mean AUC of the findings with ``FEWEST`` positive and negative images; NaN without any.

    Raises:
        ValueError: the shapes do not fit, or a score is NaN or infinite.
    """
    from sklearn.metrics import roc_auc_score  # takes half a second, which ranks need not wait

    _check(labels, scores)
    counted = _counted(labels)
    if not counted.any():
        return float("nan")
    return float(roc_auc_score(labels[:, counted], scores[:, counted], average="macro"))


def _check(labels: np.ndarray, scores: np.ndarray) -> None:
    if labels.shape != scores.shape:
        raise ValueError(f"labels {labels.shape} and scores {scores.shape} must have one shape")
    resampling.check_finite(scores)


def _counted(labels: np.ndarray) -> np.ndarray:
    """Which columns are in the mean."""
    positives = labels.sum(axis=0)
    return np.asarray(np.minimum(positives, len(labels) - positives) >= FEWEST)


def _reason(images: dict[str, Any], alone: list[str]) -> str | None:
    """What is to be said of a finding; None where there is nothing.

    Args:
        images: positive and negative ones.
        alone: of these, those that all are one patient's: drawn or not, they are the same.
    """
    for name, count in images.items():
        if count == 0:
            return f"not computable: no {name} image in this part"
    few = [name for name, count in images.items() if count < FEWEST]
    reasons = [f"not in the mean: fewer than {FEWEST} {name} images" for name in few]
    reasons += [f"no interval: all {name} images are of one patient" for name in alone]
    return "; ".join(reasons) or None


def _rank(
    labels: np.ndarray, scores: np.ndarray, patients: np.ndarray
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    """Where each patient's images stand among the scores of the positives: (ranks, patients).

    Rank k is the k-th smallest score that a positive has; the last rank is above them all. The
    first matrix counts positives with that score, the second negatives below it and not below
    the one before. A negative tied with it counts one half here and one half a rank higher.
    """
    positive, negative = labels == 1, labels == 0
    levels = np.unique(scores[positive])
    shape = (len(levels) + 1, patients.max() + 1)
    own = np.searchsorted(levels, scores[positive])
    sides = [np.searchsorted(levels, scores[negative], side) for side in ("left", "right")]
    halves = np.full(2 * negative.sum(), 0.5)
    return (
        sparse.csr_matrix((np.ones(len(own)), (own, patients[positive])), shape),
        sparse.csr_matrix((halves, (np.concatenate(sides), np.tile(patients[negative], 2))), shape),
    )


def _auc(positives: sparse.csr_matrix, negatives: sparse.csr_matrix, drawn: np.ndarray) -> Any:
    """The AUC of each column of ``drawn`` (patients, draws), how often each patient is in it.

    It is the share of pairs, a positive and a negative, in which the positive has the higher
    score, where ties count one half (the Mann-Whitney statistic). All sums are of whole numbers
    and halves, so they are exact. NaN where a draw lacks a class.
    """
    positive, negative = positives @ drawn, negatives @ drawn  # (ranks, draws)
    won = (positive * np.cumsum(negative, axis=0)).sum(axis=0)
    with np.errstate(invalid="ignore"):  # 0 / 0
        return won / (positive.sum(axis=0) * negative.sum(axis=0))
