"""The AUC of each finding, or accuracy, with 95 % intervals.

A bootstrap draws whole groups of images (patients), the same in all runs. Intervals are the
percentile ones (Efron and Tibshirani, "An Introduction to the Bootstrap", chapter 13).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from helpers.record.tasks import GUESSES, MULTICLASS, MULTILABEL, Task

RESAMPLES = 200
INTERVAL = [0.025, 0.975]
"""The quantiles between which 95 % of the resamples are."""
FEWEST = 5
"""A finding with fewer positive (or negative) images in a split is shown, but not in the mean."""
Measure = Callable[[np.ndarray], list[float]]
"""From how often each image counts: the task's metrics, then the first one of each output."""


def of_epoch(targets: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """The validation split's mean AUC, or top-1 and top-5; NaN where there is none.

    Raises:
        ValueError: the shapes do not fit, or a score is NaN or infinite.
    """
    task, measure = _measured(targets, scores)
    values = measure(np.ones(len(targets)))
    metrics = zip(task.metrics, values, strict=False)
    return {metric.of_epoch: float(value) for metric, value in metrics}


def evaluate(
    targets: np.ndarray,
    scores: np.ndarray,
    groups: Sequence[Any],
    names: Sequence[str],
    sample: Any,
) -> dict[str, Any]:
    """The record's section ``test``: metrics with intervals, and the first one of each output.

    All intervals are computed from the same draws. A draw without one of a finding's classes goes
    into the mean without that finding.

    Args:
        targets: (images, findings) of 0 and 1, or the classes' numbers (images,).
        scores: logits (images, outputs).
        groups: whose each image is: the patients. An image that stands alone is a group.
        names: of the findings or classes.
        sample: a hash of which images these are, to be updated.

    Raises:
        ValueError: the shapes do not fit, or a score is NaN or infinite.
    """
    if scores.shape != (wanted := (len(targets), len(names))):
        raise ValueError(f"scores {scores.shape} are not (images, outputs), which are {wanted}")
    task, measure = _measured(targets, scores)
    numbers, of_group = np.unique(np.asarray(groups), return_inverse=True)
    if task is MULTILABEL:
        sample.update(f"{_in_mean(targets).astype(int).tolist()}\n".encode())
    each = [measure(often) for often in (np.ones(len(targets)), *draws(of_group, sample))]
    drawn = pd.DataFrame(each[1:], dtype=float)
    values = list(zip(each[0], *drawn.quantile(INTERVAL).to_numpy(), strict=True))
    section: dict[str, Any] = {}
    for metric, value in zip(task.metrics, values, strict=False):
        ends = _with_ends(value, len(numbers), exact=task is MULTICLASS)
        section |= dict(zip(metric.tested, ends, strict=True))
    rows = _findings if task is MULTILABEL else _classes
    section |= rows(targets, of_group, names, values[len(task.metrics) :])
    return section | {"resamples": drawn[0].to_numpy().round(6), "sample": sample.hexdigest()[:32]}


def draws(groups: np.ndarray, sample: Any) -> Iterator[np.ndarray]:
    """How often each image is drawn, ``RESAMPLES`` times; ``sample`` is updated by what was drawn.

    From the generator's raw numbers, which NumPy promises never to change.
    """
    count = int(groups.max()) + 1
    for chosen in np.random.PCG64(0).random_raw((RESAMPLES, count)) % count:
        drawn = np.bincount(chosen.astype(np.int64), minlength=count)
        sample.update(drawn.astype("<i4").tobytes())
        yield drawn[groups]


def _measured(targets: np.ndarray, scores: np.ndarray) -> tuple[Task, Measure]:
    if not np.isfinite(scores).all():
        raise ValueError("scores hold NaN or infinity: the training diverged")
    if targets.ndim == 1:
        return MULTICLASS, _accuracy(targets, scores)
    if targets.shape != scores.shape:
        raise ValueError(f"targets {targets.shape} and scores {scores.shape} must have one shape")
    return MULTILABEL, _auc(targets, scores)


def _auc(labels: np.ndarray, scores: np.ndarray) -> Measure:
    """The share of pairs, a positive and a negative, in which the positive scores higher."""
    # ``roc_auc_score`` gives the same, but takes 2 ms to check its arguments, 2,800 times.
    levels = [np.unique(column, return_inverse=True)[1] for column in scores.T]
    counted = _in_mean(labels)

    def measure(often: np.ndarray) -> list[float]:
        found = []
        for of, level in zip(labels.T, levels, strict=True):
            positive = np.bincount(level, often * of)
            negative = np.bincount(level, often * (1 - of))
            pairs = positive.sum() * negative.sum()
            won = positive @ (np.cumsum(negative) - negative / 2)
            found.append(won / pairs if pairs else np.nan)
        return [pd.Series(found, dtype=float)[counted].mean(), *found]

    return measure


def _accuracy(targets: np.ndarray, scores: np.ndarray) -> Measure:
    """By the highest scores; of equal ones the last class is first, as in scikit-learn."""
    ranked = np.argsort(scores, axis=1, kind="stable")[:, ::-1][:, :GUESSES]
    named, classes = ranked == targets[:, None], scores.shape[1]

    def measure(often: np.ndarray) -> list[float]:
        of = (often, often * named[:, 0])
        images, hits = (np.bincount(targets, many, classes) for many in of)
        of_class = np.divide(hits, images, out=np.full(classes, np.nan), where=images > 0)
        top5 = often @ named.any(axis=1) / often.sum() if classes > GUESSES else np.nan
        return [hits.sum() / images.sum(), top5, *of_class]

    return measure


def _in_mean(labels: np.ndarray) -> np.ndarray:
    positives = labels.sum(axis=0)
    return np.asarray(np.minimum(positives, len(labels) - positives) >= FEWEST)


def _with_ends(value: Sequence[float], groups: int, *, exact: bool) -> tuple[float, float, float]:
    """A value and its interval, which is NaN for a single group.

    With ``exact``, of all images right or none, the binomial one (Clopper and Pearson 1934).
    """
    middle, low, high = map(float, value)
    if groups < 2:
        return middle, np.nan, np.nan
    if exact and middle in (0, 1):
        from scipy.stats import binomtest  # takes half a second, which ranks need not wait

        ends = binomtest(int(groups * middle), groups).proportion_ci()
        low, high = float(ends.low), float(ends.high)
    return middle, low, high


def _findings(
    labels: np.ndarray, groups: np.ndarray, names: Sequence[str], values: Sequence[Any]
) -> dict[str, Any]:
    rows = []
    for name, column, value in zip(names, labels.T, values, strict=True):
        of = {"positive": groups[column == 1], "negative": groups[column == 0]}
        patients = {kind: len(np.unique(found)) for kind, found in of.items()}
        auc, low, high = _with_ends(value, min(patients.values()), exact=False)
        none = [
            f"not computable: no {kind} image in this split" for kind in of if not len(of[kind])
        ]
        few = [kind for kind, found in of.items() if len(found) < FEWEST]
        said = [f"not in the mean: fewer than {FEWEST} {kind} images" for kind in few]
        alone = [kind for kind, count in patients.items() if count == 1]
        said += [f"no interval: all {kind} images are of one patient" for kind in alone]
        counts = {f"{kind}s": len(found) for kind, found in of.items()}
        row = {"finding": name, "auc": auc, "low": low, "high": high} | counts
        rows.append(row | {"reason": "; ".join(none or said) or None})
    counted = zip(names, _in_mean(labels), strict=True)
    return {
        "findings": rows,
        "in_mean": [name for name, counts in counted if counts],
    }


def _classes(
    targets: np.ndarray, groups: np.ndarray, names: Sequence[str], values: Sequence[Any]
) -> dict[str, Any]:
    rows = []
    for number, (name, value) in enumerate(zip(names, values, strict=True)):
        of = groups[targets == number]
        top1, low, high = _with_ends(value, len(np.unique(of)), exact=True)
        row = {"class": name, "images": len(of), "top1": top1, "low": low, "high": high}
        rows.append(row)
    return {"classes": rows}
