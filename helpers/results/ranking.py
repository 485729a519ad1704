"""Rank frameworks by their images/s when training on files, the report's main metric.

The rate is that of the rounds of section 11, which exclude compiling (``rates.together``).
Headline, answer, first chart and tables use the same order.
"""

from functools import lru_cache

import pandas as pd

from helpers.results.comparability import ranked
from helpers.results.comparison import KEPT, Comparison
from helpers.results.repeated_runs import ONE_RUN, summarise

RATE = "images_per_second"


@lru_cache(maxsize=KEPT)
def field(compared: Comparison) -> pd.DataFrame:
    """The rows of :func:`summarise` that are ranked: of the ranked runs those on most devices.

    The fastest first; rows with marks, which are not ranked, last. Empty where nothing ranks.
    """
    rivals, found = ranked(compared), summarise(compared)
    most = max((entry.devices or 0 for entry in rivals), default=0)
    labels = {entry.label for entry in rivals if entry.devices == most}
    found = found[found["label"].isin(labels) & (found["devices"] == most)]
    order = found.assign(marked=found["marks"].map(len) > 0, slow=-found[RATE].astype(float))
    return found.loc[order.sort_values(["marked", "slow"], kind="stable").index]


def ordered(compared: Comparison) -> pd.DataFrame:
    """The rows of :func:`summarise`, the fastest label of :func:`field` first.

    Labels that are not ranked follow, in the order of the frameworks.
    """
    found = summarise(compared)
    places = {label: place for place, label in enumerate(field(compared)["label"])}
    return found.sort_values("label", key=lambda labels: labels.map(places), kind="stable")


def fastest(compared: Comparison) -> list[pd.Series]:
    """The rows of :func:`field` from which no other is significantly faster, the fastest first."""
    rows = [row for _, row in field(compared).iterrows() if not row["marks"]]
    return [row for row in rows if row is rows[0] or not is_faster(rows[0], row)]


def is_faster(fast: pd.Series, slow: pd.Series) -> bool:
    """Whether two rows' intervals are clear of each other; of single values, a tolerance."""
    if _has_interval(fast) and _has_interval(slow):
        return bool(fast[f"{RATE}_low"] > slow[f"{RATE}_high"])
    return bool(fast[RATE] > slow[RATE] * (1 + ONE_RUN))


def _has_interval(row: pd.Series) -> bool:
    return bool(row["runs"] > 1 or row[f"{RATE}_low"] < row[f"{RATE}_high"])
