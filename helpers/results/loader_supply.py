"""Compare what each run's loader delivers with what its devices take."""

import math
from functools import lru_cache
from typing import Any

import pandas as pd

from helpers.results import tables
from helpers.results.comparability import RANKED
from helpers.results.comparison import ENDS, KEPT, Comparison, repeats
from helpers.results.repeated_runs import summarise
from helpers.results.tables import ABSENT, Cell, Table, of_row, ranged, share, short_number
from helpers.training import loader_advice

NOTHING = "nothing"
_SUPPLY, _DEMAND = "loader_images_per_second", "synthetic_images_per_second"
_FILES = "files_images_per_second"


@lru_cache(maxsize=KEPT)
def numbers(compared: Comparison) -> pd.DataFrame:
    """A row a label and number of devices, with medians and extremes of repeats.

    Columns: label, devices, runs, kind, marks, the rates of files, loader and synthetic data, fed
    (how many devices the loader feeds; missing of devices that share hardware), workers, cores (on
    which the loader may work) and change (what to change first: ``NOTHING`` where supply suffices,
    empty where the record tells nothing).
    """
    groups = repeats(compared.finished)
    rows: list[dict[str, Any]] = []
    for row in summarise(compared).to_dict("records"):
        contents = [entry.content for entry in groups[row["label"], row["devices"]]]
        last = contents[-1]
        names = ("label", "devices", "runs", "kind", "marks")
        found = {name: row[name] for name in names}
        found |= {
            f"{rate}{end}": row[f"{rate}{end}"]
            for rate in (_SUPPLY, _DEMAND, _FILES)
            for end in ENDS
        }
        told = row["kind"] in RANKED
        # The interval's ends: the slowest loader with the fastest devices, and the reverse.
        for end, demand in zip(ENDS, ("", "_high", "_low"), strict=True):
            each = row[f"{_DEMAND}{demand}"] / row["devices"]
            found[f"fed{end}"] = math.floor(row[f"{_SUPPLY}{end}"] / each) if told else math.nan
        found["workers"] = last["data"].get("loader_workers")
        found["cores"] = loader_advice.cores(last)
        enough = row[f"{_SUPPLY}_low"] >= row[f"{_DEMAND}_high"]
        change = NOTHING if enough else loader_advice.first_change(last)
        rows.append(found | {"change": change})
    return pd.DataFrame(rows)


def table(compared: Comparison) -> Table:
    """:func:`numbers` for a reader."""
    rows = []
    for row in numbers(compared).to_dict("records"):
        cells = {
            "supply": ranged(row, _SUPPLY, short_number),
            "demand": ranged(row, _DEMAND, short_number),
            "devices fed": ranged(row, "fed", "{:,.0f}".format, missing=ABSENT),
            "workers": Cell(row["workers"], "{:.0f}".format, missing=ABSENT),
            "cores": Cell(row["cores"], "{:.0f}".format, missing=ABSENT),
            "change first": row["change"] or ABSENT,
        }
        rows.append((of_row(row), cells))
    return tables.table(
        "Supply and demand of images",
        "images/s",
        rows,
        note="Supply is the loader's rate alone, and demand is the rate of training on synthetic "
        "data. Devices fed is supply divided by the demand of one device, rounded down. On "
        "CPUs the loader delivers less during training, because the devices compute on its cores. "
        "A change is named only if the ranges of supply and demand overlap, or supply is lower. "
        "The format comes first, then more workers where cores are left, then a local copy.",
    ).without_uniform("workers", "cores")


def faster_loading(compared: Comparison) -> list[str]:
    """Whether faster loading can pay, by :func:`numbers`: a sentence for each run where it can."""
    never, pays = [], []
    rows = numbers(compared).to_dict("records")
    for row in rows:
        if not row[_SUPPLY] > 0 or not row[_DEMAND] > 0:
            continue
        if row["change"] == NOTHING:
            never.append(row[_SUPPLY] / row[_DEMAND])
            continue
        most = max(row[_DEMAND] / row[_FILES] - 1, 0)
        pays.append(
            f"{of_row(row).text}: the loader alone supplies {short_number(row[_SUPPLY])} images/s "
            f"and training on synthetic data uses {short_number(row[_DEMAND])}, so faster loading "
            f"raises images/s by at most {share(most)}."
        )
    if never:
        ends = dict.fromkeys(short_number(end) for end in (min(never), max(never)))
        unknown = len(rows) - len(never) - len(pays)
        count = f"{len(never)} of {len(rows)} rows" + f" ({unknown} cannot tell)" * bool(unknown)
        pays.append(
            f"Packed images do not pay in {count}: the loader alone "
            f"supplies {' to '.join(ends)} times the images/s that training on synthetic data uses."
        )
    return pays
