"""Split the speed-up to a target into its factors: time = images needed / images per second.

So the speed-up to a target is the *hardware efficiency*, how many times the images a second, over
the *statistical efficiency*, how many times the images were needed (Zhang and Ré 2014,
https://arxiv.org/abs/1403.7550, of epochs: how long one takes, and how many it takes; of the latter
less is better). The images a second are those of the whole way: first step, validation and waiting
included, so that the two factors give the speed-up exactly.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import pandas as pd

from helpers.results import comparability, learning_curves, tables
from helpers.results.comparability import together
from helpers.results.comparison import ENDS, KEPT, Comparison, Entry, devices, repeats
from helpers.results.learning_curves import NOT_REACHED, Reached
from helpers.results.scaling.speed import beyond_base
from helpers.results.tables import ABSENT, Cell, Name, Row, Table, of_row, ranged

MOST_SENTENCES = 12
FACTORS = ("speed_up", "hardware_efficiency", "statistical_efficiency")
HEADS = ("speed-up", "hardware efficiency", "statistical efficiency")


def target(compared: Comparison) -> float | None:
    """``learning_curves.main_target``; without one, the highest value that every run reached."""
    wanted = learning_curves.main_target(compared)
    return learning_curves.target(compared) if wanted is None else wanted


@lru_cache(maxsize=8 * KEPT)
def numbers(compared: Comparison, wanted: float | None = None) -> pd.DataFrame:
    """The split of each series at one target; a row a label and number of devices.

    ``wanted`` is :func:`target` by default. Columns: label, series, devices, nodes, kind
    (``comparability.kind``), target, runs, reached (how many of them), base (the fewest devices of
    the series that every run reached it on; NaN if there are none), base_runs, seconds, images,
    images_per_second until the target (geometric means over the runs, NaN if not all reached it),
    speed_up, hardware_efficiency and statistical_efficiency (speed_up is the one over the other; 1
    at the base) and their minimum and maximum (``_low``, ``_high``) over the pairs of runs,
    which are those of equal seeds if by_seed, else all, best (the highest validation of any run),
    images_seen (the most that any run was trained on), rate (images/s of all epochs, validation
    included, a geometric mean), rate_factor (that over the base's), marks.

    Where some run of a row did not reach the target there is no factor: those that did would make
    it look better than it is.
    """
    wanted = target(compared) if wanted is None else wanted
    if wanted is None:
        return pd.DataFrame()
    series: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for group in repeats(compared.finished).values():
        row = _ways(compared, group, wanted)
        series.setdefault((row["series"], row["kind"]), []).append(row)
    rows = []
    for found in series.values():
        found.sort(key=lambda row: (row["nodes"], row["devices"]))
        base = next((row for row in found if row["reached"] == row["runs"]), None)
        found.sort(key=lambda row: (row["devices"], row["nodes"]))
        rows += [_split(row, base) for row in found]
    return pd.DataFrame(rows).drop(columns=["ways", "seeds"], errors="ignore")


def _ways(compared: Comparison, group: Sequence[Entry], wanted: float) -> dict[str, Any]:
    """What the repeats of a run took to get there."""
    metric, first = compared.metric, group[0]
    ways = [learning_curves.reached(entry, metric, wanted) for entry in group]
    ends = [learning_curves.history(entry) for entry in group]
    whole = [_ratio(float(end["images"].sum()), float(end["clock"].iloc[-1])) for end in ends]
    got = [way for way in ways if way is not None]
    found: dict[str, Any] = {
        "label": first.label,
        "series": first.series,
        "devices": first.devices,
        "nodes": comparability.nodes(first.content),
        "kind": comparability.kind(first.content),
        "target": wanted,
        "runs": len(group),
        "reached": len(got),
        "ways": got,
        "seeds": [entry.content["recipe"]["seed"] for entry in group],
        "seconds": math.nan,
        "images": math.nan,
        "images_per_second": math.nan,
    }
    if len(got) == len(group):
        found["seconds"] = _middle([way.seconds for way in got])
        found["images"] = _middle([way.images for way in got])
        found["images_per_second"] = _ratio(found["images"], found["seconds"])
    return found | {
        "best": max(learning_curves.best(entry, metric) for entry in group),
        "images_seen": max(float(end["images"].sum()) for end in ends),
        "rate": _middle(whole),
        "marks": together(comparability.marks(entry.content) for entry in group),
    }


def _split(row: dict[str, Any], base: dict[str, Any] | None) -> dict[str, Any]:
    """``row`` with its factors over ``base``."""
    factors = {f"{name}{end}": math.nan for name in FACTORS for end in ENDS}
    found = row | {"base": math.nan, "base_runs": 0, "rate_factor": math.nan, "by_seed": False}
    if base is None:
        return found | factors
    found |= {"base": base["devices"], "base_runs": base["runs"]}
    found["rate_factor"] = _ratio(row["rate"], base["rate"])
    if row["reached"] < row["runs"]:
        return found | factors
    pairs, found["by_seed"] = _pairs(row, base)
    ratios = {
        "speed_up": [_ratio(few.seconds, many.seconds) for many, few in pairs],
        "hardware_efficiency": [_ratio(_rate(many), _rate(few)) for many, few in pairs],
        "statistical_efficiency": [_ratio(many.images, few.images) for many, few in pairs],
    }
    for name, each in ratios.items():
        found[name] = _middle(each)
        alone = row is base
        found[f"{name}_low"] = 1.0 if alone else min(each)
        found[f"{name}_high"] = 1.0 if alone else max(each)
    return found


def _pairs(row: dict[str, Any], base: dict[str, Any]) -> tuple[list[tuple[Reached, Reached]], bool]:
    """The pairs of runs to compare with the base, and whether they pair by seed.

    Runs of one seed have the split, the weights and the augmentation in common, so that what
    they differ in is the number of devices. Without one run of each seed on both, it is every run
    against every one.
    """
    many, few = (dict(zip(one["seeds"], one["ways"], strict=True)) for one in (row, base))
    if many.keys() == few.keys() and len(many) == row["runs"] == base["runs"]:
        return [(many[seed], few[seed]) for seed in many], True
    return list(product(row["ways"], base["ways"])), False


def _rate(way: Reached) -> float:
    return _ratio(way.images, way.seconds)


def _middle(values: Sequence[float]) -> float:
    """The geometric mean, so that factors multiply; NaN where there was nothing to count."""
    if not values or not all(value > 0 for value in values):
        return math.nan
    return math.exp(sum(math.log(value) for value in values) / len(values))


def _ratio(above: float, below: float) -> float:
    return above / below if below > 0 else math.nan


def several(compared: Comparison) -> bool:
    """Whether any series tried to reach a target on several numbers of devices."""
    return not beyond_base(numbers(compared)).empty


def table(compared: Comparison) -> Table:
    """For each of the recipe's targets the split; a row a label and number of devices.

    Without the rows of the base. Empty where no series was run on several numbers of devices.
    """
    wanted: Sequence[float | None] = learning_curves.targets(compared) or [target(compared)]
    rows: dict[Name, dict[Name, Cell]] = {}
    metric = compared.metric
    for value in wanted:
        if value is None:
            continue
        for row in beyond_base(numbers(compared, value)).to_dict("records"):
            cells = {
                head: ranged(row, factor, "{:.2f}".format, missing=ABSENT)
                for head, factor in zip(HEADS, FACTORS, strict=True)
            }
            if row["reached"] < row["runs"]:
                cells["speed-up"] = Cell(_not_reached(row))
            above = f"{metric.short} {metric.target(value)}"
            rows.setdefault(of_row(row, f" over {row['base']:.0f}"), {}).update(
                {Name(head, above=above): cell for head, cell in cells.items()}
            )
    return tables.table(
        "Hardware and statistical efficiency, for each target",
        "run",
        rows.items(),
        note="Speed-up = hardware efficiency / statistical efficiency, relative to the fewest "
        "devices that reached the target. Cells give the geometric mean over repeats and seeds, so "
        "that the factors multiply, with the minimum and maximum. Runs are paired by seed if both "
        "sides have one run of each seed; otherwise all pairs count. Factors are missing if a run "
        "missed the target.",
        kind="wide",
    )


def _not_reached(row: Row) -> str:
    if not row["reached"]:
        return NOT_REACHED
    return f"{NOT_REACHED} by {row['runs'] - row['reached']} of {row['runs']} runs"


def sentences(compared: Comparison) -> list[str]:
    """The split in words, a line a label and number of devices; then who never got further.

    ``PyTorch was 3.09 times as fast to reach top-1 75 % on 8 devices as on 1 (one run each). It
    trained 7.10 times as many images/s and needed 2.30 times as many images, compiling and
    validation included.``
    """
    shown = target(compared)
    if shown is None:
        return []
    rows = beyond_base(numbers(compared, shown)).to_dict("records")
    few = rows
    if len(rows) > MOST_SENTENCES:  # too many to read; the table has all
        few = list({(row["series"], row["kind"]): row for row in rows}.values())
    said = [sentence(compared, row) for row in few]
    failed = {(row["label"], row["devices"]) for row in rows if row["reached"] < row["runs"]}
    for value in learning_curves.targets(compared):
        if value > shown:
            for row in beyond_base(numbers(compared, value)).to_dict("records"):
                who = (row["label"], row["devices"])
                if row["reached"] < row["runs"] and who not in failed:
                    failed.add(who)
                    said.append(sentence(compared, row))
    return said


def sentence(compared: Comparison, row: Row) -> str:
    """What :func:`sentences` says of one row of :func:`numbers`."""
    metric = compared.metric
    wanted = f"{metric.short} {metric.target(row['target'])}"
    many, base = devices(row["devices"]), f"{row['base']:.0f}"
    if row["reached"] < row["runs"]:
        runs = f" in {row['runs'] - row['reached']} of {row['runs']} runs" * bool(row["reached"])
        return (
            f"{row['label']} did not reach {wanted} on {many}{runs} with "
            f"{row['images_seen']:,.0f} images (best {metric.text(row['best'])}). It trained "
            f"{_times(row['rate_factor'])} as many images/s as on {base}, compiling and validation "
            "included."
        )
    counts = (row["runs"], row["base_runs"])
    runs = "one run each" if max(counts) == 1 else f"{counts[0]} runs against {counts[1]}"
    times, low, high = row["speed_up"], row["speed_up_low"], row["speed_up_high"]
    came = "was {} as fast to reach {} on {} as on {}"
    if low < 1 < high:
        came = f"{came}, in some pairs of runs faster and in others slower"
    elif times < 1:
        times, low, high = 1 / times, 1 / high, 1 / low
        came = "took {} as long to reach {} on {} as on {}"
    over = "seeds" if row["by_seed"] else "pairs of runs"
    spread = f", {short(low)} to {short(high)} over the {over}" * bool(low < high)
    return (
        f"{row['label']} {came.format(_times(times), wanted, many, base)} ({runs}{spread}). "
        f"It trained {_times(row['hardware_efficiency'])} as many images/s and needed "
        f"{_times(row['statistical_efficiency'])} as many images, compiling and validation "
        "included."
    )


def _times(factor: float) -> str:
    if math.isnan(factor):
        return "an unknown number of times"
    return f"{short(factor)} times"


def short(factor: float) -> str:
    """A factor as sentences give it."""
    return f"{factor:.2f}" if factor < 10 else f"{factor:.1f}"
