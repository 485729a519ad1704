"""Word the ranking: who finishes first on which devices, and what more devices bring."""

from collections.abc import Iterable, Sequence
from typing import Any

from helpers.results import machines
from helpers.results.best import MORE_IS_BETTER, SPREAD, Order, orders
from helpers.results.comparability import nodes, simulated_nodes
from helpers.results.comparison import Comparison, Entry, devices, latest_of_each
from helpers.results.learning_curves import main_target
from helpers.results.ranking import ranked
from helpers.results.repeated_runs import field
from helpers.results.runs import frame
from helpers.results.scaling import speed
from helpers.results.tables import ranged, short_number, time_text

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


def order_said(compared: Comparison) -> list[str]:
    """Who finishes first, then who is fastest in steady state, in clauses.

    ``PyTorch finishes first``, ``in steady state four are level``, ``measured once``.
    """
    found = orders(frame(compared))
    if not found:
        return ["no framework can be named the best"]
    time, steady = found["seconds"], found["images_per_second"]
    if len(time.labels) + len(time.noisy) == 1:
        row = field(compared).iloc[0]
        return [f"{row['label']} trains in {time_text(row['seconds'])}"]
    if time.best == steady.best:
        said = [_clause(time, "finishes first and is fastest", "are level in time and") + _STEADY]
    else:
        said = [
            _clause(time, "finishes first", "finish level"),
            _STEADY[1:] + " " + _clause(steady, "is fastest", "are level"),
        ]
    for noisy in dict.fromkeys([time.noisy, steady.noisy]):
        if noisy:
            where = _STEADY * (noisy != time.noisy)
            verb = "is" if len(noisy) == 1 else "are"
            said.append(f"{listed(noisy)} {verb} too noisy to place{where}")
    return [*said, *["measured once"] * time.once]


_STEADY = " in steady state"


def _clause(order: Order, one: str, several: str) -> str:
    """``PyTorch finishes first``, ``four are level``, ``no framework can be named``."""
    best = order.best
    if len(best) < 2:
        return f"{best[0]} {one}" if best else "no framework can be named the best"
    if len(best) == len(order.labels) > 2 and not order.noisy:
        return f"all {number(len(best))} {several}"
    return f"{listed(best) if len(best) < 4 else number(len(best))} {several}"


def measured(compared: Comparison) -> list[str]:
    """A sentence a measure: the best with their figures, who follows, and who cannot be placed."""
    metric, wanted = compared.metric, main_target(compared)
    titles = {
        "seconds": "Training time, compiling included",
        "seconds_to_target": ""
        if wanted is None
        else f"Time to {metric.short} {metric.target(wanted)}",
        "images_per_second": "Images/s in steady state",
    }
    rows = {row["label"]: row for row in field(compared).to_dict("records")}
    said = []
    for measure, order in orders(frame(compared)).items():
        form = short_number if MORE_IS_BETTER[measure] else time_text

        def cell(label: str, measure: str = measure, form: Any = form) -> str:
            return f"{label} {ranged(rows[label], measure, form)}"

        parts = ["too noisy to tell who is best"]
        if order.named:
            parts = [listed(map(cell, order.best)) + " are level" * (order.named > 1)]
        parts += [f"then {cell(one)}" for one in order.labels[order.named : order.named + 1]]
        if order.noisy:
            parts.append(f"too noisy to place: {listed(map(cell, order.noisy))}")
        said.append(f"{titles[measure]}: {'; '.join(parts)}.")
    return said


def certainty(compared: Comparison) -> str:
    """From which lead a framework is named alone, by how many runs, and how many would tell more.

    Empty where there is one framework.
    """
    found = orders(frame(compared))
    time = found["seconds"]
    if len(time.labels) + len(time.noisy) < 2:
        return ""
    lead = f"{100 * time.lead:.0f} %"
    if time.once:
        said = (
            f"Measured once: a lead in training time counts from {lead}, on the assumption that "
            f"runs differ by {100 * SPREAD:.0f} %."
        )
    else:
        said = f"A lead in training time counts from {lead}."
    for measure, order in found.items():
        if order.seeds:
            seeds = ",".join(map(str, range(order.seeds)))
            what = "steady state" if MORE_IS_BETTER[measure] else "training"
            first, second = order.labels[:2]
            return f"{said} --seeds {seeds} would tell {first} from {second} in {what}."
    return said


def gains(compared: Comparison) -> tuple[str, str]:
    """What more devices bring, at a glance and in a sentence; both empty without such runs.

    ``training x 0.71 to 1.71, steady state x 0.97 to 1.83``.
    """
    found = speed.beyond_base(speed.numbers(compared))
    if found.empty:
        return "", ""
    last = found.loc[found.groupby("series", sort=False)["devices"].idxmax()]
    clean = last[last["marks"].map(len) == 0]
    last = last if clean.empty else clean
    bases, counts = set(last["base"]), set(last["devices"])
    who = "More devices make"
    if len(bases) == len(counts) == 1:
        base, count = bases.pop(), counts.pop()
        who = "A second device makes" if (base, count) == (1, 2) else ""
        who = who or f"{devices(count)} instead of {base} make"
    short, long = [], []
    for figure, name in (("time_speed_up", "training"), ("speed_up", "steady state")):
        ends = [last.loc[last[figure].idxmin()], last.loc[last[figure].idxmax()]]
        texts = list(dict.fromkeys(f"{row[figure]:.2f}" for row in ends))
        short.append(f"{name} x {' to '.join(texts)}")
        if len(last) == 1:
            cell = ranged(ends[0], figure, "{:.2f}".format)
            long.append(f"{name} {cell} times as fast")
        else:
            named = (f"{row[figure]:.2f} ({row['label']})" for row in ends)
            long.append(f"{name} {' to '.join(named)} times as fast")
    of = f" of {last.iloc[0]['label']}" if len(last) == 1 else ""
    return ", ".join(short), f"{who} the whole {long[0]}{of}, and {long[1]}."


def fairly(count: int) -> str:
    """``all seven are fairly compared``, ``both are fairly compared``."""
    return f"{'both' if count == 2 else f'all {number(count)}'} are fairly compared"


def number(count: int) -> str:
    """``four``; ``12``."""
    return _WORDS[count] if count < len(_WORDS) else str(count)


def listed(texts: Iterable[str], word: str = "and") -> str:
    """``A``, ``A and B``, ``A, B and C``."""
    *most, last = texts
    return f"{', '.join(most)} {word} {last}" if most else last
