"""The comparison in three sentences: who was fastest, whether that is fair, what was waited for."""

from collections import Counter
from dataclasses import dataclass

import pandas as pd

from helpers import attribution
from helpers.agreement import differences
from helpers.comparison import Comparison, devices, latest_of_each, widest
from helpers.repeats import summarise
from helpers.tables import short_number

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
    first, fair, waited = answers(compared)
    if not compared.finished:
        return "No run has finished yet, so there is nothing to compare."
    machine = _machine(compared)
    named = (
        f"{first.verdict} trained fastest on {machine}"
        if first.verdict != "nobody"
        else f"No framework can be called fastest on {machine}"
    )
    is_fair = {
        "yes": "the comparison is fair",
        "no": "the comparison is not fair",
        "only in part": "the comparison is fair only in part",
        "one framework": "there is nothing yet to compare it with",
    }[fair.verdict]
    wait = (
        "the devices waited for little"
        if waited.verdict == "little"
        else f"what the devices waited for most was {waited.verdict}"
    )
    return f"{named}; {is_fair}; {wait}."


def fastest(compared: Comparison) -> Answer:
    """The quickest training among the runs that may be compared, on the most devices."""
    question = "Fastest"
    numbers = summarise(compared)
    if numbers.empty:
        return Answer(question, "nobody", "No run has finished.")
    most = int(numbers["devices"].max())
    field = numbers[numbers["devices"] == most].sort_values("seconds", ignore_index=True)
    fair = field[field["comparable"]].reset_index(drop=True)
    where = devices(most)
    virtual = (field["kind"] == "cpu").any()
    caution = " Virtual devices share the CPU's cores: no word about GPUs." if virtual else ""
    if fair.empty:
        told = ", ".join(f"{row['label']} {_time(row)}" for _, row in field.iterrows())
        return Answer(
            question, "nobody", f"No run on {where} passed its certificate ({told}).{caution}"
        )
    best = fair.iloc[0]
    text = f"{_time(best)} on {where}, {short_number(best['images_per_second'])} images/s"
    if len(fair) > 1:
        text += f"; {_lead(best, fair.iloc[1])}"
    quicker = [str(row["label"]) for _, row in field.iterrows() if row["seconds"] < best["seconds"]]
    if quicker:
        text += f". {' and '.join(quicker)} took less time but did not pass the certificate"
    return Answer(question, str(best["label"]), f"{text}.{caution}")


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


def _lead(best: pd.Series, second: pd.Series) -> str:
    ratio = second["seconds"] / best["seconds"]
    name = second["label"]
    overlap = (
        best["seconds_high"] >= second["seconds_low"] and min(best["runs"], second["runs"]) > 1
    )
    if overlap:
        return f"{name} is within the spread of the repeats"
    if ratio < 1.02:
        return f"{name} is less than 2 % behind"
    return f"{ratio:.2f} times as fast as {name}"


def _time(row: pd.Series) -> str:
    seconds = row["seconds"]
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


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
