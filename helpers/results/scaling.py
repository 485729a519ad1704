"""Compute speed-ups and scaling efficiency against one device and one node."""

from functools import lru_cache
from typing import Any

import pandas as pd

from helpers.results import learning_curves, tables
from helpers.results.comparability import RANKED, RESUMED, together
from helpers.results.comparison import ENDS, KEPT, Comparison
from helpers.results.repeated_runs import summarise
from helpers.results.tables import ABSENT, Cell, Name, Table, ranged, share

RATE = "images_per_second"


@lru_cache(maxsize=KEPT)
def numbers(compared: Comparison) -> pd.DataFrame:
    """The gain from more devices: one row per label and number of devices with their own hardware.

    Columns: label, series, devices, nodes, runs, base (the series' fewest devices, on one node if
    it was run there), ideal (the base's images/s times the ratio of devices), images_per_second,
    speed_up (its images/s over the base's), efficiency (over the ideal: 1 is perfect), the same of
    synthetic data (synthetic_speed_up, synthetic_efficiency), node_efficiency (images/s of several
    nodes over as many times that of one with as many devices; NaN without such a run),
    time_speed_up (the base's training time over its own), target_speed_up (the same of the time to
    the target), images_factor (the images that it needed for the target over those of the base: the
    statistical efficiency), and for all but ideal the minimum and maximum that their ranges allow
    (``_low``, ``_high``), comparable, flags (its own and the base's), kind.

    The base has a row, with 1 in each column. Resumed runs are left out, because their times cover
    only the last process. Runs whose devices share cores or a machine are left out too, because
    they show no scaling.
    """
    found = summarise(compared)
    whole = found["flags"].map(lambda flags: RESUMED not in flags).astype(bool)
    clean = found[whole & found["kind"].isin(RANKED)]
    rows = []
    for _, group in clean.groupby("series", sort=False):
        group = group.sort_values(["nodes", "devices"])
        base = group.iloc[0]
        for _, row in group.sort_values(["devices", "nodes"]).iterrows():
            rows.append(_row(row, base, _one_node(group, row)))
    return pd.DataFrame(rows)


def _one_node(group: pd.DataFrame, row: pd.Series) -> pd.Series | None:
    """The one-node run with as many devices as each node of this run has."""
    each = row["devices"] / row["nodes"]
    alone = group[(group["nodes"] == 1) & (group["devices"] == each)]
    return alone.iloc[0] if row["nodes"] > 1 and not alone.empty else None


def _row(row: pd.Series, base: pd.Series, node: pd.Series | None) -> dict[str, Any]:
    ratio = row["devices"] / base["devices"]
    found: dict[str, Any] = {
        name: row[name] for name in ("label", "series", "devices", "nodes", "runs")
    }
    found |= {"base": base["devices"], "ideal": base[RATE] * ratio}
    found |= {RATE + end: row[RATE + end] for end in ENDS}
    for kind in ("", "synthetic_"):
        for end, value in _over(row, base, f"{kind}{RATE}").items():
            found[f"{kind}speed_up{end}"] = value
            found[f"{kind}efficiency{end}"] = value / ratio
    for name, (above, below, column) in {
        "time_speed_up": (base, row, "seconds"),
        "target_speed_up": (base, row, "seconds_to_target"),
        "images_factor": (row, base, "images_to_target"),
    }.items():
        found |= {f"{name}{end}": value for end, value in _over(above, below, column).items()}
    for end in ENDS:
        over_node = float("nan") if node is None else _over(row, node, RATE)[end] / row["nodes"]
        found[f"node_efficiency{end}"] = over_node
    return found | {
        "comparable": row["comparable"] and base["comparable"],
        "flags": together([row["flags"], base["flags"]]),
        "kind": row["kind"],
    }


def _over(row: pd.Series, base: pd.Series, rate: str) -> dict[str, float]:
    """The ratio of ``row`` to ``base``: of the medians, and the widest by their intervals."""
    if row["label"] == base["label"] and row["devices"] == base["devices"]:
        return dict.fromkeys(ENDS, 1.0)
    return {
        "": row[rate] / base[rate],
        "_low": row[f"{rate}_low"] / base[f"{rate}_high"],
        "_high": row[f"{rate}_high"] / base[f"{rate}_low"],
    }


def beyond_base(found: pd.DataFrame) -> pd.DataFrame:
    """The rows on more devices than their base has."""
    return found if found.empty else found[found["devices"] > found["base"]]


def several(compared: Comparison) -> bool:
    """Whether anything was run on several numbers of devices that have their own hardware."""
    return not beyond_base(numbers(compared)).empty


def table(compared: Comparison) -> Table:
    """The same for a reader: one row per label and number of devices, without the rows of the base.

    Empty if there are only those.
    """
    rows, found = [], numbers(compared)
    wanted = learning_curves.main_target(compared)
    to = "" if wanted is None else f"{compared.metric.short} {compared.metric.target(wanted)}"
    heads = {
        "training time": ("time_speed_up", "{:.2f}".format),
        f"time to {to}": ("target_speed_up", "{:.2f}".format),
        f"images to {to}": ("images_factor", "{:.2f}".format),
        "images/s": ("speed_up", "{:.2f}".format),
        "efficiency": ("efficiency", share),
        "against one node": ("node_efficiency", share),
        "synthetic efficiency": ("synthetic_efficiency", share),
    }
    for row in found.to_dict("records") if several(compared) else ():
        if row["devices"] > row["base"] or row["nodes"] > 1:
            cells: dict[str, Cell | str] = {"devices": f"{row['base']} to {row['devices']}"}
            for head, (column, form) in heads.items():
                cells[head] = ranged(row, column, form, missing=ABSENT)
            rows.append((Name(row["label"], row["flags"]), cells))
    return tables.table(
        "Speed-ups and efficiency",
        "framework",
        rows,
        note="Efficiency is the speed-up of images/s divided by the ratio of device counts. "
        "Brackets hold the ratios of the ends of the runs' brackets.",
        folded=True,
    )
