"""Split an iteration into work and all-reduce by number of nodes, and predict more nodes.

The prediction is a model, T = Tc + max(0, Tar - overlap) + jitter
(``results.all_reduce_model``). It is
fitted to all numbers of nodes but the largest, judged on that, and silent where it fails.
"""

from functools import lru_cache
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from helpers.results import all_reduce_model, comparability, tables
from helpers.results.comparison import KEPT, Comparison, Entry, latest_of_each
from helpers.results.rates import ENDS
from helpers.results.scaling import step_parts
from helpers.results.scaling.step_parts import milliseconds
from helpers.results.tables import Cell, Table, of_label, share

LIMIT = 0.15
"""By how much the model may be off where it is judged, to speak of more nodes."""
NODES = 64
"""The number of nodes that the model speaks of."""
FEWEST = 3
"""Numbers of nodes: two to fit, one to judge."""


@lru_cache(maxsize=KEPT)
def numbers(compared: Comparison) -> pd.DataFrame:
    """Seconds of an iteration; a row a run, of series that were run on several numbers of nodes.

    Columns: series, label, nodes, where (``2 x 1 simulated``), devices, own (forward, backward and
    update; the median over ranks, or over rounds), all_reduce (what of it these do not hide), of
    both ``_low`` and ``_high``, how (as ``step_parts.numbers``).
    """
    rows = []
    for entry in latest_of_each(compared.finished):
        how, parts = step_parts.parts_of(entry)
        reduced = parts.get("all-reduce", [0.0] if entry.devices == 1 else [])
        if not reduced or "compute" not in parts:
            continue
        updates = parts.get("update", [0.0] * len(parts["compute"]))
        own = [sum(both) for both in zip(parts["compute"], updates, strict=True)]
        row = {
            "series": entry.series,
            "label": entry.label,
            "nodes": comparability.nodes(entry.content),
            "where": entry.nodes or f"1 x {entry.devices}",
            "devices": entry.devices,
            "how": how,
        }
        rows.append(row | step_parts.ends("own", own) | step_parts.ends("all_reduce", reduced))
    found = pd.DataFrame(rows)
    if found.empty:
        return found
    several = found.groupby("series")["nodes"].transform("nunique") > 1
    return found[several].sort_values(["series", "nodes", "devices"], ignore_index=True)


def table(compared: Comparison) -> Table:
    """:func:`numbers` in milliseconds; empty where nothing was run on several."""
    rows = []
    for row in numbers(compared).to_dict("records"):
        whole = row["own"] + max(0.0, row["all_reduce"])
        part = max(0.0, row["all_reduce"]) / whole if whole > 0 else 0.0
        cells = {
            "nodes": Cell(row["nodes"]),
            "own work": milliseconds(*(row[f"own{end}"] for end in ENDS)),
            "all-reduce": milliseconds(*(row[f"all_reduce{end}"] for end in ENDS)),
            "all-reduce's share": Cell(part, share),
        }
        rows.append((of_label(f"{row['label']}, {row['devices']}"), cells))
    return tables.table(
        "Own work and all-reduce, in ms",
        "ms a step",
        rows,
        note="Own work is forward, backward and update. The all-reduce is the part that own work "
        "does not hide; it includes the wait for slower ranks. Cells give the median, with the "
        "minimum and maximum over the ranks.",
    )


class _Measured(NamedTuple):
    """What the record of a run on several machines says of its ranks and their network."""

    nodes: int
    devices: int
    nbytes: float
    all_reduce: tuple[float, float, float]
    """By itself: the least, the median, the most, seconds."""
    own: list[float]
    """A step of each rank without its all-reduce."""
    exposed: list[float]
    """The part of the all-reduce that each rank waits for."""


def _measured(entry: Entry) -> _Measured | None:
    content = entry.content
    cluster, nodes = content.get("cluster", {}), comparability.nodes(content)
    alone, parts = cluster.get("all_reduce"), cluster.get("step_parts") or []
    if nodes < 2 or comparability.simulated_nodes(content) or not alone or not parts:
        return None
    if any(part.get("all_reduce") is None or part.get("compute") is None for part in parts):
        return None
    low, high = alone["interval"]
    return _Measured(
        nodes,
        content["devices"]["count"],
        alone["bytes"],
        (low, alone["seconds"], high),
        [sum(part.get(name) or 0.0 for name in ("data", "compute", "update")) for part in parts],
        [part["all_reduce"] for part in parts],
    )


def expected(compared: Comparison) -> list[str]:
    """What the model expects of ``NODES`` nodes, or why it says nothing; a line a series."""
    series: dict[tuple[str, int], list[_Measured]] = {}
    for entry in latest_of_each(compared.finished):
        if (found := _measured(entry)) is not None:
            series.setdefault((entry.series, found.devices // found.nodes), []).append(found)
    said = []
    for (name, each_node), runs in series.items():
        runs.sort(key=lambda run: run.nodes)
        if len({run.nodes for run in runs}) >= FEWEST and runs[-1].nodes < NODES:
            said.append(
                f"{name}, {each_node} per node: {_sentence(runs[:-1], runs[-1], each_node)}"
            )
    return said


def _sentence(few: list[_Measured], most: _Measured, each_node: int) -> str:
    laws = [_law(few, end) for end in range(3)]
    alone = _all_reduce(laws[1], most.devices, most.nbytes) / most.all_reduce[1] - 1
    whole = _iteration(few, laws[1], most.devices) / (fmean(most.own) + fmean(most.exposed)) - 1
    error = max(abs(alone), abs(whole))
    judged = (
        f"It was fitted to {', '.join(str(run.nodes) for run in few)} nodes and tested on "
        f"{most.nodes}, where it is off by {100 * abs(alone):.0f} % in the all-reduce and by "
        f"{100 * abs(whole):.0f} % in the step."
    )
    if error > LIMIT:
        return f"the model makes no prediction for more nodes. {judged}"
    compute = fmean(_own(few))
    ends = [
        compute / (_iteration(few, law, NODES * each_node) * (1 + off))
        for law, off in ((laws[2], error), (laws[0], -error))
    ]
    low, high = (100 * min(1.0, end) for end in ends)
    return (
        f"at {NODES} nodes of this network the model expects {low:.0f} to {high:.0f} % of a step "
        f"to be the ranks' own work. {judged}"
    )


def _law(few: list[_Measured], end: int) -> np.ndarray:
    """Alpha and beta of a ring; records have one size, so adding up is a part of beta."""
    law = np.array([all_reduce_model.terms("ring", (1, r.devices), r.nbytes)[:2] for r in few])
    return all_reduce_model.closest(law, np.array([run.all_reduce[end] for run in few]))


def _all_reduce(law: np.ndarray, devices: int, nbytes: float) -> float:
    return float(all_reduce_model.terms("ring", (1, devices), nbytes)[:2] @ law)


def _own(few: list[_Measured]) -> list[float]:
    return [seconds for run in few for seconds in run.own]


def _iteration(few: list[_Measured], law: np.ndarray, devices: int) -> float:
    """Seconds: the slowest rank waits least, so the least wait is what was not hidden."""
    hidden = max(0.0, *(run.all_reduce[1] - min(run.exposed) for run in few))
    own: list[float] = _own(few)
    found: Any = all_reduce_model.iteration(
        fmean(own),
        _all_reduce(law, devices, few[0].nbytes),
        hidden,
        all_reduce_model.jitter(own, devices),
    )
    return float(found)
