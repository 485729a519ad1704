"""Tell which frameworks may be the best by a measure, from one value per run.

Hsu's multiple comparisons with the best (Hsu 1981, https://doi.org/10.1214/aos/1176345582) on
logarithms: the true best is among those named in 95 % of experiments. The unit is the run, because
the rounds and epochs of one run share what differs from run to run. The variance is pooled within
frameworks, and the quantile is Dunnett's (one-sided).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd

from helpers.results.runs import undisturbed

MORE_IS_BETTER = {"seconds": False, "seconds_to_target": False, "images_per_second": True}
"""The measures, in the order in which the report names them."""
CONFIDENCE = 0.95
SPREAD, DEGREES = 0.03, 24
"""The standard deviation of the logarithms between runs that is assumed if no framework has two
runs, and its degrees of freedom. It is about that of images/s in 12 rows of three runs of the
published CPU demo (docs/results/cpu-2-cores/demo; its other two rows are above ``TOO_NOISY``)."""
TOO_NOISY = 0.10
"""The standard deviation above which a framework's runs do not widen the others' margins."""
_POWER = 0.84
"""The normal quantile of 80 %: such a lead is named in four of five experiments."""
_SEEDS = (3, 5, 10)


@dataclass(frozen=True)
class Order:
    """Frameworks by one measure.

    labels: the best first. named: how many of the first may be the best; the others are worse.
    noisy: those whose runs differ too much to place them, in no order. once: whether each was
    measured once, so that the spread is an assumption. lead: from which lead the second is worse
    than the first, 0.11 for 11 %. seeds: how many runs of each would separate these two; None if
    they are separate already, or if ten would not be enough.
    """

    labels: tuple[str, ...]
    named: int
    noisy: tuple[str, ...] = ()
    once: bool = False
    lead: float = 0.0
    seeds: int | None = None

    @property
    def best(self) -> tuple[str, ...]:
        return self.labels[: self.named]


def field(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs that are ranked, of ``runs.frame``: those on the most devices, without flags.

    A label is left out if any of its runs that count (``runs.undisturbed``) has a flag.
    """
    if runs.empty or not runs["ranks"].any():
        return runs.iloc[:0]
    able = undisturbed(runs[runs["ranks"]])
    widest = able[able["devices"] == able["devices"].max()]
    flagged = widest.loc[widest["flags"].map(len) > 0, "label"]
    return widest[~widest["label"].isin(flagged)]


def orders(runs: pd.DataFrame) -> dict[str, Order]:
    """For each measure, the order of those frameworks in ``runs.frame`` that have all its values.

    Measures that no framework has are left out.
    """
    found: dict[str, Order] = {}
    able = field(runs)
    for measure, more in MORE_IS_BETTER.items() if len(able) else ():
        each = able.groupby("label", sort=False)[measure].agg(list)
        values = {label: those for label, those in each.items() if not pd.isna(those).any()}
        if values:
            found[measure] = order(values, more=more)
    return found


def order(values: Mapping[str, Sequence[float]], *, more: bool) -> Order:
    """Order these frameworks by their geometric means; ``more``: whether more is better.

    Args:
        values: for each framework, a value above 0 for each run.
    """
    logs = {label: (1 if more else -1) * np.log(each) for label, each in values.items()}
    means = {label: float(each.mean()) for label, each in logs.items()}
    spread = {label: float(each.std(ddof=1)) for label, each in logs.items() if len(each) > 1}
    noisy = [label for label in logs if spread.get(label, 0.0) > TOO_NOISY]
    quiet = [label for label in logs if label not in noisy]
    freedom = sum(len(logs[label]) - 1 for label in quiet)
    squares = sum((len(logs[label]) - 1) * spread.get(label, 0.0) ** 2 for label in quiet)
    pooled = math.sqrt(squares / freedom) if freedom else SPREAD
    factor = dunnett(len(quiet) - 1, freedom or DEGREES)

    def behind(label: str, other: str) -> bool:
        """Whether ``label`` is worse than ``other``, by more than chance explains."""
        found = {one: spread[one] if one in noisy else pooled for one in (label, other)}
        wide = math.hypot(*(found[one] / math.sqrt(len(logs[one])) for one in found))
        least = [len(logs[one]) - 1 for one in found if one in noisy]
        quantile = dunnett(len(logs) - 1, min(least)) if least else factor
        return means[other] - means[label] > quantile * wide + 1e-12

    def is_placed(label: str) -> bool:
        """Whether a noisy framework is clearly the best, or clearly not."""
        others = [other for other in logs if other != label]
        return all(behind(other, label) for other in others) or any(
            behind(label, other) for other in others
        )

    unplaced = [label for label in noisy if not is_placed(label)]
    labels = sorted((label for label in logs if label not in unplaced), key=lambda one: -means[one])
    possible = [
        place
        for place, label in enumerate(labels)
        if not any(behind(label, other) for other in logs if other != label)
    ]
    runs = min(map(len, logs.values()))
    found = Order(
        tuple(labels),
        max(possible, default=-1) + 1,
        tuple(unplaced),
        once=max(map(len, logs.values())) == 1,
        lead=math.expm1(factor * pooled * math.sqrt(2 / runs)),
    )
    if found.named < 2:
        return found
    ahead = means[labels[0]] - means[labels[1]]
    return replace(found, seeds=_enough(ahead, pooled, len(quiet), runs))


def _enough(lead: float, spread: float, labels: int, runs: int) -> int | None:
    """How many runs of each label, more than ``runs``, reveal a lead of that size."""
    for count in _SEEDS:
        quantile = dunnett(labels - 1, labels * (count - 1))
        if count > runs and (quantile + _POWER) * spread * math.sqrt(2 / count) <= lead:
            return count
    return None


@lru_cache(maxsize=256)
def dunnett(others: int, freedom: int) -> float:
    """The one-sided quantile for comparisons of one group with ``others`` of the same size.

    freedom: the degrees of freedom of the pooled variance. The integral over the mean of the one
    group and over the pooled deviation is a Gaussian quadrature, so the result is always the same.
    """
    from scipy.special import chdtri, ndtr  # takes half a second, which no plan need wait for

    if others < 1:
        return 0.0
    shifts, weights = np.polynomial.hermite_e.hermegauss(48)
    places, shares = np.polynomial.legendre.leggauss(48)
    deviations = np.sqrt(chdtri(freedom, (1 - places) / 2) / freedom)[:, None]
    low, high = 0.0, 100.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        below = ndtr(math.sqrt(2) * middle * deviations + shifts) ** others
        chance = shares / 2 @ below @ weights / weights.sum()
        low, high = (middle, high) if chance < CONFIDENCE else (low, middle)
    return high
