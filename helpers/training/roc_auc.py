"""The area under the ROC curve of each finding, with its uncertainty."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from helpers.training import resampling

FEWEST = 5
"""A finding with fewer positive (or negative) images in a split is shown, but not in the mean."""


@dataclass(frozen=True)
class Evaluation:
    """The AUC of a test split; its text gives the mean and explains it.

    ``table`` has one row a finding; auc or its interval is NaN where it cannot be had, and reason
    says why, or why it is not in the mean. ``mean`` is over the findings ``in_mean``, NaN where
    there are none; ``resamples`` are the mean's. Where ``sample`` is equal in two runs, their
    resamples are of the same images.
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
        split = f"{images} images of {self.patients} patients"
        if not self.in_mean:
            few = f"{FEWEST} positive and {FEWEST} negative images"
            return f"No mean AUC: no finding has {few} in {split}."
        interval = f" (95 % interval {self.low:.3f} to {self.high:.3f})"
        lines = [
            f"Mean AUC {self.mean:.3f}{interval if np.isfinite(self.low) else ''} of "
            f"{len(self.in_mean)} findings, {split}."
        ]
        few = self.table[~self.table["finding"].isin(self.in_mean)]
        if not few.empty:
            listed = ", ".join(f"{row.finding} ({row.positives})" for row in few.itertuples())
            lines.append(f"Too few positive (or negative) images for the mean: {listed}.")
        return "\n".join([*lines, resampling.SAID])

    def as_record(self) -> dict[str, Any]:
        """The record's section ``test``."""
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

    All are computed from the same draws; a draw without one of a finding's classes goes into the
    mean without that finding.

    Args:
        labels: (images, findings), 0 or 1.
        scores: (images, findings), logits or probabilities: only their order counts.
        patients: whose each image is.
        names: of the findings.
        sample: a hash of which images these are, to be updated.

    Raises:
        ValueError: the shapes do not fit, or a score is NaN or infinite.
    """
    from sklearn.metrics import roc_auc_score  # takes half a second, which ranks need not wait

    _check(labels, scores)
    numbers, of_patient = np.unique(np.asarray(patients), return_inverse=True)
    counted = _counted(labels)
    sample.update(f"{counted.astype(int).tolist()}\n".encode())
    levels = [np.unique(column, return_inverse=True)[1] for column in scores.T]
    each = [
        [_drawn_auc(*finding, often) for finding in zip(labels.T, levels, strict=True)]
        for often in resampling.draws(of_patient, sample)
    ]
    resampled = pd.DataFrame(each, columns=list(names))
    ends = resampled.quantile(resampling.INTERVAL)
    rows: list[dict[str, Any]] = []
    for finding, column, score in zip(names, labels.T, scores.T, strict=True):
        of = {"positive": of_patient[column == 1], "negative": of_patient[column == 0]}
        alone = [kind for kind, patients in of.items() if len(np.unique(patients)) == 1]
        images = {kind: len(found) for kind, found in of.items()}
        auc = roc_auc_score(column, score) if min(images.values()) else np.nan
        low, high = (np.nan, np.nan) if alone else ends[finding]
        row = {"finding": finding, "auc": auc, "low": low, "high": high}
        counts = {f"{kind}s": count for kind, count in images.items()}
        rows.append(row | counts | {"reason": _reason(images, alone)})
    table = pd.DataFrame(rows)
    means = resampled.loc[:, counted].mean(axis=1)
    low, high = means.quantile(resampling.INTERVAL) if len(numbers) > 1 else (np.nan, np.nan)
    return Evaluation(
        table,
        mean=float(table["auc"][counted].mean()),
        low=float(low),
        high=float(high),
        in_mean=tuple(table["finding"][counted]),
        patients=len(numbers),
        resamples=means.to_numpy(),
        sample=sample.hexdigest()[:32],
    )


def of_epoch(labels: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """What an epoch's row in the record says of the validation split.

    The mean AUC of the findings with ``FEWEST`` positive and negative images; NaN without any.

    Raises:
        ValueError: the shapes do not fit, or a score is NaN or infinite.
    """
    from sklearn.metrics import roc_auc_score  # takes half a second, which ranks need not wait

    _check(labels, scores)
    counted = _counted(labels)
    if not counted.any():
        return {"valid_auc": float("nan")}
    mean = roc_auc_score(labels[:, counted], scores[:, counted], average="macro")
    return {"valid_auc": float(mean)}


def _drawn_auc(labels: np.ndarray, levels: np.ndarray, often: np.ndarray) -> float:
    """The AUC with each image counted so ``often``; NaN if that leaves no image of a class.

    It is the share of pairs, a positive and a negative, in which the positive has the higher
    score, where ties count one half. ``roc_auc_score`` gives the same with ``sample_weight``, but
    takes 2 ms to check its arguments, in each of 2,800 calls.
    """
    positive = np.bincount(levels, often * labels)
    negative = np.bincount(levels, often * (1 - labels))
    pairs = positive.sum() * negative.sum()
    won = positive @ (np.cumsum(negative) - negative / 2)
    return float(won / pairs) if pairs else float("nan")


def _check(labels: np.ndarray, scores: np.ndarray) -> None:
    if labels.shape != scores.shape:
        raise ValueError(f"labels {labels.shape} and scores {scores.shape} must have one shape")
    resampling.check_finite(scores)


def _counted(labels: np.ndarray) -> np.ndarray:
    """Which columns are in the mean."""
    positives = labels.sum(axis=0)
    return np.asarray(np.minimum(positives, len(labels) - positives) >= FEWEST)


def _reason(images: dict[str, int], alone: list[str]) -> str | None:
    """What is to be said of a finding with so many positive and negative images, if anything."""
    for name, count in images.items():
        if count == 0:
            return f"not computable: no {name} image in this split"
    few = [name for name, count in images.items() if count < FEWEST]
    reasons = [f"not in the mean: fewer than {FEWEST} {name} images" for name in few]
    reasons += [f"no interval: all {name} images are of one patient" for name in alone]
    return "; ".join(reasons) or None
