"""The comparison in three sentences: who was fastest, whether that is fair, what was waited for."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from helpers import attribution
from helpers.agreement import differences
from helpers.comparison import Comparison, devices, latest_of_each, widest
from helpers.repeats import ONE_RUN, summarise
from helpers.standing import marked, unranked
from helpers.tables import short_number

UNRANKED = "not ranked here"
"""The verdict on speed where the devices rank nothing."""
_NAMES = {"data": "data", "synchronisation": "each other"}
_LITTLE = 0.05


@dataclass(frozen=True)
class Answer:
    """question: in a word or two; verdict: the answer at a glance; text: what it rests on."""

    question: str
    verdict: str
    text: str


def answers(compared: Comparison) -> tuple[Answer, Answer, Answer]:
    """Fastest, fairness and waiting, worked out from the records and nothing else."""
    return fastest(compared), fairness(compared), waiting(compared)


def headline(compared: Comparison) -> str:
    """The same in one sentence, for the top of a page."""
    if not compared.finished:
        return "No run has finished yet, so there is nothing to compare."
    first, fair, waited = answers(compared)
    machine = _machine(compared)
    is_fair = {
        "yes": "the comparison is fair",
        "no": "the comparison is not fair",
        "only in part": "the comparison is fair only in part",
        "one framework": "there is nothing yet to compare it with",
    }[fair.verdict]
    if first.verdict == UNRANKED:
        same = " the same network" if fair.verdict == "yes" else ""
        return (
            f"{_frameworks(compared)} trained{same} on {machine}; {is_fair}; "
            "speed is not ranked here."
        )
    named = (
        f"No framework can be called fastest on {machine}"
        if first.verdict == "nobody"
        else f"{first.verdict} trained fastest on {machine}"
    )
    wait = (
        "the devices waited for little"
        if waited.verdict == "little"
        else f"what the devices waited for most was {waited.verdict}"
    )
    return f"{named}; {is_fair}; {wait}."


def fastest(compared: Comparison) -> Answer:
    """The quickest training among the runs that may be compared, on the most GPUs.

    Nobody is named where the devices rank nothing; several where they are not told apart.
    """
    question = "Fastest"
    if not compared.finished:
        return Answer(question, "nobody", "No run has finished.")
    why = unranked(compared)
    if why is not None:
        return Answer(question, UNRANKED, f"{why} {_shown(compared)}")
    numbers = summarise(compared)
    numbers = numbers[numbers["kind"] == "gpu"]
    most = int(numbers["devices"].max())
    field = numbers[numbers["devices"] == most].sort_values("seconds", ignore_index=True)
    clean = field[[not marks for marks in field["marks"]]]
    if clean.empty:
        told = "; ".join(f"{_marked(row)} {_time(row)}" for _, row in field.iterrows())
        text = f"No run on {devices(most)} has times that may stand beside others': {told}."
        return Answer(question, "nobody", text)
    best, others = clean.iloc[0], clean.iloc[1:]
    level = others[[not _apart(best, row) for _, row in others.iterrows()]]
    text = f"{_time(best)} on {devices(most)}, {short_number(best['images_per_second'])} images/s"
    if not level.empty:
        close = ", ".join(f"{row['label']} {_time(row)}" for _, row in level.iterrows())
        text += f"; not told apart from it: {close}"
    elif not others.empty:
        text += f"; {_lead(best, others.iloc[0])}"
    quicker = field[(field["seconds"] < best["seconds"]) & [bool(m) for m in field["marks"]]]
    if not quicker.empty:
        text += (
            f". Less time, but not counted: {_listed(_marked(r) for _, r in quicker.iterrows())}"
        )
    return Answer(question, _listed([best["label"], *level["label"]]), f"{text}.")


def fairness(compared: Comparison) -> Answer:
    """Whether the finished runs may stand side by side, and what speaks against it."""
    question = "Fair?"
    runs = compared.finished
    if not runs:
        return Answer(question, "unknown", "No run has finished.")
    failed = [entry.label for entry in runs if not entry.comparable]
    differ = [what for what, _ in differences(runs)]
    verdicts = Counter(
        check["verdict"] for entry in runs for check in entry.content["fairness"]["checks"]
    )
    checks = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    text = f"{len(runs) - len(failed)} of {len(runs)} finished runs passed their certificate"
    if failed:
        text += f", not so {', '.join(dict.fromkeys(failed))}"
    text += f". Their checks: {checks or 'none'}"
    if differ:
        text += f". Not the same everywhere: {'; '.join(differ)}"
    unfinished = len(compared.entries) - len(runs) + len(compared.unreadable)
    if unfinished:
        text += f". {unfinished} did not finish"
    if len({entry.label for entry in runs}) < 2:
        return Answer(question, "one framework", f"{text}.")
    verdict = "yes"
    if failed or differ:
        verdict = "no" if len(failed) == len(runs) else "only in part"
    return Answer(question, verdict, f"{text}.")


def waiting(compared: Comparison) -> Answer:
    """The largest share of the training time in which devices did not compute.

    A share on which the run's ways of measuring differ is not to be trusted, and counts nowhere.
    """
    question = "Waited for"
    rows, doubted = [], set[str]()
    for entry in widest(compared.finished):
        found = entry.content["attribution"]
        unsure = attribution.doubted(found)
        for share, value in found["shares"].items():
            if share in unsure:
                doubted.add(share)
            else:
                rows.append({"run": entry.run, "share": share, "value": value})
    if not rows:
        return Answer(question, "unknown", "No run has finished.")
    if unknown := doubted - {row["share"] for row in rows}:
        why = f"In every run the ways of measuring {' and '.join(sorted(unknown))} differ."
        return Answer(question, "unknown", why)
    table = pd.DataFrame(rows)
    computed = table[table["share"] == "compute"]["value"]
    span = ""
    if not computed.empty:
        low, high = _percent(computed.min()), _percent(computed.max())
        span = f"Compute took {low if low == high else f'{low} to {high}'} of the training time"
    waits = table[~table["share"].isin(["compute", "validation"])]
    if waits.empty or waits["value"].max() < _LITTLE:
        return Answer(question, "little", f"{span or 'Nothing else was measured'}.")
    means = waits.groupby("share")["value"].mean()
    share = str(means.idxmax())
    worst = waits[waits["share"] == share].sort_values("value").iloc[-1]
    most = f"{share} up to {_percent(worst['value'])} ({worst['run']})"
    text = "; ".join(part for part in (span, most) if part)
    return Answer(question, _NAMES.get(share, share), f"{text}.")


def _apart(best: pd.Series, other: pd.Series) -> bool:
    """Whether ``other`` is slower by more than chance: beyond the repeats, or a tolerance."""
    if min(best["runs"], other["runs"]) > 1:
        return bool(best["seconds_high"] < other["seconds_low"])
    return bool(other["seconds"] > best["seconds"] * (1 + ONE_RUN))


def _lead(best: pd.Series, second: pd.Series) -> str:
    ratio = f"{second['seconds'] / best['seconds']:.2f}"
    if min(best["runs"], second["runs"]) > 1:
        low = second["seconds_low"] / best["seconds_high"]
        high = second["seconds_high"] / best["seconds_low"]
        return f"{ratio} ({low:.2f} to {high:.2f}) times as fast as {second['label']}"
    return f"{ratio} times as fast as {second['label']}, one run each"


def _time(row: pd.Series) -> str:
    """``37.8 s (one run)``, ``2.1 min (2.0 to 2.2 in 3 runs)``."""
    unit, divisor = ("s", 1.0) if row["seconds"] < 120 else ("min", 60.0)
    if row["runs"] == 1:
        return f"{row['seconds'] / divisor:.1f} {unit} (one run)"
    low, high = row["seconds_low"] / divisor, row["seconds_high"] / divisor
    runs = f"{low:.1f} to {high:.1f} in {row['runs']} runs"
    return f"{row['seconds'] / divisor:.1f} {unit} ({runs})"


def _marked(row: pd.Series) -> str:
    return marked(row["label"], row["marks"])


def _listed(texts: Iterable[str]) -> str:
    """``A``, ``A and B``, ``A, B and C``."""
    *most, last = texts
    return f"{', '.join(most)} and {last}" if most else last


def _frameworks(compared: Comparison) -> str:
    names = list(dict.fromkeys(e.content["framework"]["name"] for e in compared.finished))
    return names[0] if len(names) == 1 else f"{len(names)} frameworks"


def _shown(compared: Comparison) -> str:
    """What runs whose times rank nothing show all the same."""
    return ""


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _machine(compared: Comparison) -> str:
    """``4 NVIDIA H100``, ``2 virtual CPU devices``: the most devices that were used."""
    entries = [entry for entry in latest_of_each(compared.finished) if entry.devices]
    last = max(entries, key=lambda entry: entry.devices or 0)
    found = last.content["devices"]
    if found["kind"] == "cpu":
        return f"{found['count']} virtual CPU device{'s' if found['count'] > 1 else ''}"
    return f"{found['count']} {', '.join(dict.fromkeys(found['names']))}"
