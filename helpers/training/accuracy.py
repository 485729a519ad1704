"""Top-1 and top-5 accuracy with intervals, and the most frequent confusions of classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from helpers.record.tasks import GUESSES, TOP1, TOP5
from helpers.training import resampling

CONFUSIONS = 10
"""Number of the most frequent confusions that are reported."""


@dataclass(frozen=True)
class Evaluation:
    """The accuracy of a test split; its text gives the shares and explains them.

    ``table`` has one row a class; top1 is NaN if the split has no image of it, its interval if all
    are of one group. ``confusions`` are the most frequent, with their share of the class's
    images. ``top1`` and ``top5`` are shares of all images with the ends of their intervals;
    ``top5`` is NaN where there are no more than ``GUESSES`` classes. ``resamples`` are top-1's, of
    the images that ``sample`` names.
    """

    table: pd.DataFrame
    confusions: pd.DataFrame
    top1: tuple[float, float, float]
    top5: tuple[float, float, float]
    groups: int
    resamples: np.ndarray
    sample: str

    def __str__(self) -> str:
        shares = [
            f"{metric.short} {metric.text(share)}"
            + (f" (95 % interval {metric.text(low)} to {metric.text(high)})" if low == low else "")
            for metric, (share, low, high) in ((TOP1, self.top1), (TOP5, self.top5))
            if np.isfinite(share)
        ]
        images = int(self.table["images"].sum())
        listed = f"{', '.join(shares)} of {len(self.table)} classes, "
        lines = [f"{listed}{images} images in {self.groups} groups."]
        if not self.confusions.empty:
            first = self.confusions.iloc[0]
            lines.append(
                f"Most often confused: {TOP1.text(first['share'])} of the images of "
                f"{first['class']} are classified as {first['predicted_as']}."
            )
        return "\n".join([*lines, resampling.SAID])

    def as_record(self) -> dict[str, Any]:
        """The record's section ``test``."""
        rows = self.table.astype(object).where(self.table.notna(), None)
        return {
            **dict(zip(TOP1.tested, self.top1, strict=True)),
            **dict(zip(TOP5.tested, self.top5, strict=True)),
            "classes": rows.to_dict("records"),
            "confusions": self.confusions.to_dict("records"),
            "groups": self.groups,
            "resamples": self.resamples.round(6),
            "sample": self.sample,
        }


def evaluate(
    targets: np.ndarray,
    scores: np.ndarray,
    groups: Sequence[Any],
    names: Sequence[str],
    sample: Any,
) -> Evaluation:
    """Top-1 and top-5 with 95 % intervals from a bootstrap over groups, top-1 of each class.

    An image that stands alone is a group. ``targets`` are the classes' numbers (images,),
    ``scores`` logits (images, classes).

    Raises:
        ValueError: the shapes do not fit, or a score is NaN or infinite.
    """
    if scores.shape != (wanted := (len(targets), len(names))):
        raise ValueError(f"scores {scores.shape} are not (images, classes), which are {wanted}")
    ranked, right, among = _ranked(targets, scores)
    numbers, of_group = np.unique(np.asarray(groups), return_inverse=True)
    shares = []  # of all images, then of each draw: top-1, top-5, top-1 of each class
    for often in (np.ones(len(targets)), *resampling.draws(of_group, sample)):
        images, hits = (np.bincount(targets, many, len(names)) for many in (often, often * right))
        of_class = np.divide(hits, images, out=np.full(len(names), np.nan), where=images > 0)
        shares.append([*(np.average(each, weights=often) for each in (right, among)), *of_class])
    whole, drawn = shares[0], pd.DataFrame(shares[1:]).quantile(resampling.INTERVAL).to_numpy().T
    of_classes = pd.Series(of_group).groupby(targets).nunique()
    counts = [len(numbers)] * 2 + of_classes.reindex(range(len(names)), fill_value=0).tolist()
    ends = [_ends(*each) for each in zip(drawn, whole, counts, strict=True)]
    table = {
        "class": list(names),
        "images": np.bincount(targets, minlength=len(names)),
        "right": np.bincount(targets[right], minlength=len(names)),
        "top1": whole[2:],
        "low": [low for low, _ in ends[2:]],
        "high": [high for _, high in ends[2:]],
    }
    return Evaluation(
        pd.DataFrame(table),
        _confusions(targets, ranked[:, 0], names),
        top1=(whole[0], *ends[0]),
        top5=(whole[1], *ends[1]) if len(names) > GUESSES else (np.nan, np.nan, np.nan),
        groups=len(numbers),
        resamples=np.array(shares)[1:, 0],
        sample=sample.hexdigest()[:32],
    )


def of_epoch(targets: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """What an epoch's row in the record says of the validation split; top-5 NaN as in a test."""
    _, right, among = _ranked(targets, scores)
    top5 = float(among.mean()) if scores.shape[1] > GUESSES else np.nan
    return {TOP1.of_epoch: float(right.mean()), TOP5.of_epoch: top5}


def _ranked(targets: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The classes with the highest scores, best first; whether the right one is first, or there.

    Among equal scores the last class is first, as in scikit-learn's ``top_k_accuracy_score``, which
    cannot say which images it counts.
    """
    resampling.check_finite(scores)
    ranked = np.argsort(scores, axis=1, kind="stable")[:, ::-1][:, :GUESSES]
    named = ranked == targets[:, None]
    return ranked, named[:, 0], named.any(axis=1)


def _ends(drawn: Any, share: float, groups: int) -> tuple[float, float]:
    """A share's interval, which is that ``drawn``; NaN for a single group.

    Where all images are right, or none, the draws cannot differ. Then it is the exact binomial
    interval of so many groups (Clopper and Pearson 1934).
    """
    if groups < 2:
        return np.nan, np.nan
    if share not in (0, 1):
        return float(drawn[0]), float(drawn[1])
    from scipy.stats import binomtest  # takes half a second, which ranks need not wait

    exact = binomtest(int(groups * share), groups).proportion_ci()
    return float(exact.low), float(exact.high)


def _confusions(targets: np.ndarray, taken: np.ndarray, names: Sequence[str]) -> pd.DataFrame:
    """The ``CONFUSIONS`` most frequent pairs; of equally frequent ones the first by class."""
    pairs = pd.DataFrame({"class": targets, "predicted_as": taken})
    wrong = pairs[targets != taken].groupby(["class", "predicted_as"]).size()
    found = wrong.sort_values(ascending=False, kind="stable").head(CONFUSIONS)
    found = found.rename("images").reset_index()
    found["share"] = found["images"] / np.bincount(targets)[found["class"]]
    for column in ("class", "predicted_as"):
        found[column] = [names[number] for number in found[column]]
    return found
