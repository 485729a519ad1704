"""Word the ranking: the fastest frameworks on which devices, and the gain of more devices."""

from collections.abc import Iterable, Sequence

import pandas as pd

from helpers.results import machines
from helpers.results.comparability import nodes, simulated_nodes
from helpers.results.comparison import Comparison, Entry, devices, latest_of_each
from helpers.results.ranking import RATE, ranked
from helpers.results.scaling import speed
from helpers.results.tables import ranged, short_number

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def machine(compared: Comparison) -> str:
    """``4 NVIDIA H100``, ``this CPU (2 devices of 1 core each)``: the most that were ranked.

    Where nothing is ranked, all numbers of CPU devices: ``1 and 2 CPU devices``; ``1 or 2`` where
    not every framework ran on all of them.
    """
    runs = ranked(compared) or compared.finished
    entries = [entry for entry in latest_of_each(runs) if entry.devices]
    last = max(entries, key=lambda entry: entry.devices or 0)
    found = last.content["devices"]
    if ranked(compared) and found["kind"] == "cpu":
        cores = machines.cores_per_device(last.content)
        each = f"{cores} core{'s' * (cores != '1')}{' each' * (found['count'] > 1)}"
        return f"this CPU ({devices(found['count'])} of {each}{_nodes([last])})"
    if found["kind"] == "cpu":
        counts = sorted({entry.devices or 0 for entry in entries})
        every = len(entries) == len(counts) * len({entry.label for entry in entries})
        many = "s" if counts[-1] > 1 else ""
        numbers = listed(map(str, counts), "and" if every else "or")
        return f"{numbers} CPU device{many}{_nodes(entries)}"
    gpus_of = (e.content["devices"] for e in entries if e.content["devices"]["kind"] == "gpu")
    names = ", ".join(dict.fromkeys(name for gpus in gpus_of for name in gpus["names"]))
    return f"{found['count']} {names}{_nodes([last])}"


def _nodes(entries: Sequence[Entry]) -> str:
    """`` of 2 simulated nodes``, `` of 1 and 2 nodes``; nothing where all are one machine."""
    counts = sorted({nodes(entry.content) for entry in entries})
    if counts == [1]:
        return ""
    simulated = "simulated " if any(simulated_nodes(entry.content) for entry in entries) else ""
    return f" of {listed(map(str, counts))} {simulated}nodes"


def named(rows: Sequence[pd.Series]) -> str:
    """``TensorFlow and PyTorch train fastest``, of the rows of ``ranking.fastest``."""
    if not rows:
        return "no framework can be called fastest"
    return f"{listed(row['label'] for row in rows)} train{'s' * (len(rows) == 1)} fastest"


def lead(rows: Sequence[pd.Series], second: pd.Series | None) -> str:
    """The rate of the fastest, who is as fast, and otherwise by how much it leads."""
    best, *level = rows
    said = f"{best['label']} trains {_rate(best, ' images/s')} on {devices(best['devices'])}"
    if level:
        close = ", ".join(f"{row['label']} {_rate(row)}" for row in level)
        return f"{said}; no significant difference from {close}"
    if second is None:
        return said
    times, low, high = (
        best[f"{RATE}{end}"] / second[f"{RATE}{other}"]
        for end, other in (("", ""), ("_low", "_high"), ("_high", "_low"))
    )
    spread = f" ({low:.2f} to {high:.2f})" if low < high else ""
    return f"{said}, {times:.2f}{spread} times as many as {second['label']}"


def _rate(row: pd.Series, unit: str = "") -> str:
    """``102 images/s (98.0 to 105)``, ``102 images/s (95.0 to 108 in 3 runs)``."""
    cell = ranged(row, RATE, short_number, note=f"in {row['runs']} runs" * (row["runs"] > 1))
    return f"{cell.text}{unit}" + f" ({cell.spread})" * bool(cell.spread)


def _scaled(compared: Comparison, rows: Sequence[pd.Series]) -> pd.DataFrame:
    """The rows of ``speed.numbers`` of these labels, on more devices than one same base."""
    found = speed.beyond_base(speed.numbers(compared))
    if found.empty or not rows:
        return pd.DataFrame()
    labels = [row["label"] for row in rows]
    found = found[found["label"].isin(labels) & (found["devices"] == rows[0]["devices"])]
    return found if found["base"].nunique() == 1 else pd.DataFrame()


def _more(found: pd.DataFrame) -> str:
    """``the second device adds``, ``4 devices instead of 1 add``."""
    base, count = int(found["base"].iloc[0]), int(found["devices"].iloc[0])
    second = (base, count) == (1, 2)
    return "the second device adds" if second else f"{devices(count)} instead of {base} add"


def gain(compared: Comparison, rows: Sequence[pd.Series]) -> str:
    """What more devices add for the fastest: ``the second device adds 88 %``, ``60 to 88 %``.

    Empty where none of them ran on several numbers of devices.
    """
    found = _scaled(compared, rows)
    if found.empty:
        return ""
    sure = found[found["speed_up_low"] > 1]["speed_up"]
    if sure.empty:
        return f"{_more(found)} nothing significant"
    low, high = (f"{100 * (end - 1):.0f}" for end in (sure.min(), sure.max()))
    upto = high if low == high else f"{low} to {high}"
    return f"{_more(found)} {upto if len(sure) == len(found) else f'up to {high}'} %"


def gains(compared: Comparison, rows: Sequence[pd.Series]) -> str:
    """The same of each with its interval: ``the second device adds 88 % (81 to 96) to Keras``."""
    found = _scaled(compared, rows)
    if found.empty:
        return ""
    said = [f"{ranged(row, 'speed_up', _percent)} to {row['label']}" for _, row in found.iterrows()]
    return f"{_more(found)} {listed(said)}"


def _percent(speed_up: float) -> str:
    return f"{100 * (speed_up - 1):.0f} %"


def fairly(count: int) -> str:
    """``all seven are fairly compared``, ``both are fairly compared``."""
    number = _WORDS[count] if count < len(_WORDS) else str(count)
    return f"{'both' if count == 2 else f'all {number}'} are fairly compared"


def listed(texts: Iterable[str], word: str = "and") -> str:
    """``A``, ``A and B``, ``A, B and C``."""
    *most, last = texts
    return f"{', '.join(most)} {word} {last}" if most else last
