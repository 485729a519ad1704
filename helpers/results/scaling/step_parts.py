"""Split a step into loading, compute, the exposed all-reduce and the update.

*Measured*: each rank timed the parts of its own steps (``cluster.step_parts`` of the record). *By
ablation*: section 11 left out loading and then the all-reduce, and the update is in compute.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import nan
from statistics import median
from typing import Any

import pandas as pd

from helpers.results import comparability, tables
from helpers.results.comparison import KEPT, Comparison, Entry, latest_of_each
from helpers.results.rates import ENDS
from helpers.results.tables import ABSENT, Cell, Table, of_run, share, short_number
from helpers.training import attribution, measurement_rounds
from helpers.training.step_parts import TOTAL, hidden_share

PARTS = ("load", "compute", "all-reduce", "update")
_FIELDS = dict(zip(PARTS, ("data", "compute", "all_reduce", "update"), strict=True))
MEASURED, BY_ABLATION = "measured", "by ablation"
WHOLE = ("total", "hidden")
STANDS_OUT = 0.10
"""The share of a step by which a slow rank's own work takes longer than the middle rank's."""


@lru_cache(maxsize=KEPT)
def numbers(compared: Comparison) -> pd.DataFrame:
    """Seconds of a step's parts; a row a label, number of devices and part, of the last run.

    Columns: run, label, devices, nodes, how (``measured`` or ``by ablation``), part, seconds (the
    median over the ranks, or over the rounds), low and high (over the ranks, or the rounds), ranks
    (how many were measured; 0 by ablation), and of the all-reduce total (its seconds with what
    computing hides of it) and hidden (that share), each with its _low and _high. A part that cannot
    be separated from compute has no row; a run whose measurement contradicts itself has none
    (:func:`left_out`).
    """
    rows = []
    for entry in latest_of_each(compared.finished):
        how, found = parts_of(entry)
        totals, shares = _whole(entry.content, how, found.get("all-reduce", []))
        whole: dict[str, Any] = ends("total", totals) | ends("hidden", shares)
        for part, values in found.items():
            rows.append(
                {
                    "run": entry.timed,
                    "label": entry.label,
                    "devices": entry.devices,
                    "nodes": comparability.nodes(entry.content),
                    "how": how,
                    "part": part,
                    "seconds": median(values),
                    "low": min(values),
                    "high": max(values),
                    "ranks": len(values) if how == MEASURED else 0,
                }
                | (whole if part == "all-reduce" else {})
            )
    return pd.DataFrame(rows)


def ends(name: str, values: Sequence[float]) -> dict[str, float]:
    """The median, minimum and maximum as columns; none without values."""
    if not values:
        return {}
    return {name: median(values), f"{name}_low": min(values), f"{name}_high": max(values)}


def _whole(
    content: dict[str, Any], how: str, exposed: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Seconds of a step's whole all-reduce, and the share that computing hides; empty if unknown.

    By ablation they need a round without all-reduce, and the all-reduce measured alone.
    """
    if not exposed:
        return [], []
    cluster = content.get("cluster", {})
    totals = [rank.get(TOTAL) for rank in cluster.get("step_parts", [])]
    if how == BY_ABLATION:
        left_out = content["no_allreduce"].get("note") == measurement_rounds.LEFT_OUT
        alone = cluster.get("all_reduce", {}).get("seconds") if left_out else None
        totals, exposed = [alone], [median(exposed)]
    known = [total for total in totals if total is not None]
    if len(known) < len(totals):
        return [], []
    shares = [hidden_share(total, wait) for total, wait in zip(known, exposed, strict=True)]
    return known, [share for share in shares if share is not None]


def parts_of(entry: Entry) -> tuple[str, dict[str, list[float]]]:
    """How the parts were found, and of each its seconds a step: of every rank, or of every round.

    A part's seconds by ablation may come out below 0, if it is not significantly different from 0.
    """
    content = entry.content
    ranks = content.get("cluster", {}).get("step_parts")
    if ranks:
        found = {part: [rank.get(field) for rank in ranks] for part, field in _FIELDS.items()}
        return MEASURED, {
            part: values for part, values in found.items() if all(v is not None for v in values)
        }
    if _why_none(content):
        return BY_ABLATION, {}
    batch = content["recipe"]["global_batch_size"]
    files, synthetic = (
        [batch / rate for rate in content[kind]["rounds"]] for kind in ("files", "synthetic")
    )
    alone = [batch / rate for rate in content.get("no_allreduce", {}).get("rounds", [])]
    each = {"load": _less(files, synthetic), "compute": alone or synthetic}
    if alone:
        each["all-reduce"] = _less(synthetic, alone)
    return BY_ABLATION, {part: values for part, values in each.items() if values}


def _why_none(content: dict[str, Any]) -> str | None:
    """Why section 11 of a run has no parts; None if it has."""
    missing = [name for name in ("files", "synthetic") if "rounds" not in content.get(name, {})]
    if missing:
        return f"it has no rounds on {' and '.join(missing)} data"
    invalid = attribution.read(content).get("invalid")
    return str(invalid) if invalid else None


def left_out(compared: Comparison) -> list[str]:
    """Which runs have no parts here, and why; a line a run."""
    return [
        f"{entry.timed}: {_why_none(entry.content) or 'its ranks timed no part of their steps'}."
        for entry in latest_of_each(compared.finished)
        if not parts_of(entry)[1]
    ]


def _less(these: Sequence[float], those: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(these, those, strict=False)]


def table(compared: Comparison) -> Table:
    """:func:`numbers` in milliseconds; rows runs; the extremes in brackets."""
    found = numbers(compared)
    names = {entry.timed: of_run(entry) for entry in compared.finished}
    rows = []
    for run, group in found.groupby("run", sort=False) if len(found) else ():
        parts = {row["part"]: row for row in group.to_dict("records")}
        ranks = int(group["ranks"].max())
        of = f"{ranks} rank{'s' * (ranks != 1)}" if ranks else "rounds"
        alone = "all-reduce" not in parts and group["devices"].iloc[0] == 1
        cells = {
            part: milliseconds(*(parts[part][end] for end in ("seconds", "low", "high")))
            if part in parts
            else (ABSENT if part == "all-reduce" and alone else "in compute")
            for part in PARTS
        }
        cells["together"] = Cell(1000 * group["seconds"].sum(), short_number)
        if "total" in group:
            cells |= _of_all_reduce(parts.get("all-reduce", {}), ABSENT if alone else "not known")
        rows.append((names[run], cells | {"method": f"{group['how'].iloc[0]}, {of}"}))
    return tables.table(
        "A step's parts, in ms",
        "ms a step",
        rows,
        note="Measured parts are medians over the ranks, which timed their own steps; brackets "
        "hold the minimum and maximum over the ranks. Parts by ablation come from rounds that left "
        "out loading and then the all-reduce; brackets hold the rounds' minimum and maximum. The "
        "all-reduce is the part that compute does not hide."
        + (" In total it has what compute hides, too." if "total" in found else ""),
    ).without_uniform("update", "method")


def _of_all_reduce(found: dict[str, Any], missing: str) -> dict[str, Cell]:
    """The whole all-reduce and what computing hides of it, as cells."""
    total, hidden = ([found.get(name + end, nan) for end in ENDS] for name in WHOLE)
    part = Cell(hidden[0], share, *hidden[1:])
    cells = {"all-reduce in total": milliseconds(*total), "of it hidden": part}
    return {name: replace(cell, missing=missing) for name, cell in cells.items()}


def milliseconds(value: float, low: float, high: float) -> Cell:
    """Seconds as milliseconds."""
    return Cell(1000 * value, short_number, 1000 * low, 1000 * high)


def sentences(compared: Comparison) -> list[str]:
    """Which rank all others wait for, or that it is the link; a line a run that was measured."""
    return [
        f"{entry.timed}: {said}"
        for entry in latest_of_each(compared.finished)
        if (said := _finding(entry.content.get("cluster", {})))
    ]


def _finding(cluster: dict[str, Any]) -> str | None:
    """What the ranks of one run wait for, as far as their parts tell."""
    ranks = cluster.get("step_parts") or []
    if len(ranks) < 2:
        return None
    step = median(_own(rank) + (rank["all_reduce"] or 0.0) for rank in ranks)
    middle = median(_own(rank) for rank in ranks)
    slowest = max(ranks, key=_own)
    more = _own(slowest) - middle
    where = f"rank {slowest['rank']} on {slowest['host']}"
    hidden = any(rank["all_reduce"] is None for rank in ranks)
    if step > 0 and more > STANDS_OUT * step:
        part = max(
            (part for part in PARTS if part != "all-reduce"),
            key=lambda part: _of(slowest, part) - median(_of(rank, part) for rank in ranks),
        )
        return (
            f"{where} is the slowest: its own work takes {_ms(_own(slowest))} a step, "
            f"{_ms(more)} more than the median rank's, most of it in {part}. "
            "The other ranks wait for it in the all-reduce."
        )
    quiet = f"no rank's own work stands out ({where} takes the most, {_ms(_own(slowest))} a step)"
    if hidden:
        return f"{quiet}. The all-reduce cannot be separated from compute here."
    waits = [float(rank["all_reduce"]) for rank in ranks]
    share = median(waits) / step if step > 0 else 0.0
    said = f"{quiet}. The exposed all-reduce takes {100 * share:.0f} % of a step"
    if share > STANDS_OUT:
        said += f", so the ranks wait for the link{_slow_host(cluster, step)}{_alone(cluster)}"
    return f"{said}."


def _slow_host(cluster: dict[str, Any], step: float) -> str:
    """`` between node1 and node2``, by the links' own rates; else `` of node2``, by the waits.

    That is of a host whose ranks all spend clearly longer in the all-reduce than the others'.
    """
    links = sorted(cluster.get("links", []), key=lambda link: float(link["bytes_per_second"]))
    if len(links) > 1:
        least, usual = (float(links[i]["bytes_per_second"]) for i in (0, len(links) // 2))
        if least < usual / 2:
            return f" between {' and '.join(links[0]['hosts'])} ({least / 1e6:,.3g} MB/s)"
    waits: dict[str, list[float]] = {}
    for rank in cluster["step_parts"]:
        waits.setdefault(str(rank["host"]), []).append(float(rank["all_reduce"]))
    longest = max(waits, key=lambda host: min(waits[host]))
    others = [wait for host, found in waits.items() if host != longest for wait in found]
    if others and min(waits[longest]) - max(others) > STANDS_OUT * step:
        return f" of {longest}"
    return ""


def _alone(cluster: dict[str, Any]) -> str:
    """What the all-reduce does by itself over which link, if it was measured."""
    found = cluster.get("all_reduce")
    if not found:
        return f" over {cluster['interface']}"
    low, high = found["interval"]
    return (
        f". Alone, over {found['over']}, the all-reduce of {found['bytes'] / 1e6:,.1f} MB "
        f"takes {_ms(found['seconds'])} ({_ms(low)} to {_ms(high)}), which is "
        f"{found['bus_bytes_per_second'] / 1e6:,.3g} MB/s on the bus"
    )


def _own(rank: dict[str, Any]) -> float:
    return sum(_of(rank, part) for part in PARTS if part != "all-reduce")


def _of(rank: dict[str, Any], part: str) -> float:
    return float(rank[_FIELDS[part]] or 0.0)


def _ms(seconds: float) -> str:
    return f"{short_number(1000 * seconds)} ms"
