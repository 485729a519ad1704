"""Answer the report's questions in a few words: who is fastest, is it fair, do devices help."""

from collections.abc import Iterable
from typing import NamedTuple

from helpers.results import comparability, scaling
from helpers.results.best import MORE_IS_BETTER, SPREAD, Order, orders
from helpers.results.comparability import flagged
from helpers.results.comparison import Comparison, devices
from helpers.results.ranking import unranked
from helpers.results.repeated_runs import field
from helpers.results.runs import frame
from helpers.results.shared_settings import differences, of_custom_networks, unequal
from helpers.results.tables import time_text

UNRANKED = "not ranked here"
"""The verdict on speed if these devices rank nothing."""
_STEADY = "in steady state"


class Answer(NamedTuple):
    """question: one or two words; verdict: the answer at a glance; text: its limits."""

    question: str
    verdict: str
    text: str


def answers(compared: Comparison) -> list[Answer]:
    """Answer who is fastest, whether it is fair and, if they vary, what more devices bring."""
    found = [fastest(compared), fairness(compared), more_devices(compared)]
    return [answer for answer in found if answer is not None]


def headline(compared: Comparison) -> str:
    """Who finishes first, and who is fastest in steady state, in about twelve words."""
    if not compared.finished:
        return "No run has finished yet, so there is nothing to compare."
    found = orders(frame(compared))
    if not found:
        names = dict.fromkeys(e.content["framework"]["name"] for e in compared.finished)
        who = next(iter(names)) if len(names) == 1 else f"{len(names)} frameworks"
        return f"{who} trained; speed is {UNRANKED}."
    time, steady = found["seconds"], found["images_per_second"]
    if len(time.labels) + len(time.noisy) == 1:
        row = field(compared).iloc[0]
        return f"{row['label']} trains in {time_text(row['seconds'])}."
    if {*time.best} == {*steady.best}:
        both = _clause(time, "finishes first and is fastest", "are level in time and")
        return f"{both} {_STEADY}."
    first = _clause(time, "finishes first", "finish level")
    return f"{first}; {_STEADY} {_clause(steady, 'is fastest', 'are level')}."


def _clause(order: Order, one: str, several: str) -> str:
    """``PyTorch finishes first``, ``4 are level``, ``no framework can be named``."""
    named = order.best
    if len(named) < 2:
        return f"{named[0]} {one}" if named else "no framework can be named the best"
    whole = "all " * (len(named) == len(order.labels) > 2 and not order.noisy)
    return f"{listed(named) if len(named) < 3 else f'{whole}{len(named)}'} {several}"


def fastest(compared: Comparison) -> Answer:
    """Who finishes first on the most devices (``best``), and how sure that is.

    It names no framework if no run is ranked, and several if each may be the best.
    """
    question = "Ranking"
    if not compared.finished:
        return Answer(question, "unknown", "No run has finished.")
    if (why := unranked(compared)) is not None:
        return Answer(question, UNRANKED, why)
    if (why := unequal(compared)) is not None:
        return Answer(question, "unknown", f"{why} The frameworks are not ranked.")
    rows, time = field(compared), orders(frame(compared)).get("seconds")
    left_out = rows[rows["flags"].map(len) > 0]
    names = [flagged(row["label"], row["flags"]) for _, row in left_out.iterrows()]
    said = [f"Not ranked: {listed(names)}." if names else "", _certainty(compared)]
    if rows["kind"].iloc[0] == "cpu":
        said.append("CPU results say nothing about GPUs.")
    verdict = "unknown" if time is None else listed(time.best) or "too noisy to tell"
    return Answer(question, verdict, " ".join(filter(None, said)))


def _certainty(compared: Comparison) -> str:
    """Who is too noisy to place, which lead may be chance, and how many runs would tell more.

    Empty if there is only one framework.
    """
    found = orders(frame(compared))
    time, steady = found.get("seconds"), found.get("images_per_second")
    if time is None or steady is None or len(time.labels) + len(time.noisy) < 2:
        return ""
    noisy = [*time.noisy, *(f"{who} {_STEADY}" for who in steady.noisy if who not in time.noisy)]
    are = "are" if len(noisy) > 1 else "is"
    said = [f"{listed(noisy)} {are} too noisy to place."] if noisy else []
    lead = f"lead in training time below {100 * time.lead:.0f} % may be chance"
    once = f"Measured once: if runs differ by {100 * SPREAD:.0f} %, a {lead}."
    said.append(once if time.once else f"A {lead}.")
    for measure, order in found.items():
        if order.seeds:
            seeds = ",".join(map(str, range(order.seeds)))
            what = "steady state" if MORE_IS_BETTER[measure] else "training"
            first, second = order.labels[:2]
            said.append(f"--seeds {seeds} would tell {first} from {second} in {what}.")
            break
    return " ".join(said)


def fairness(compared: Comparison) -> Answer:
    """Whether the finished runs can be compared, and if not, why."""
    question, runs = "Fair", compared.finished
    if not runs:
        return Answer(question, "unknown", "No run has finished.")
    failed = dict.fromkeys(e.label for e in runs if comparability.failed(e.content))
    differ = [what for what, _ in differences(runs)]
    own = of_custom_networks(runs)
    variants: dict[str, dict[str, None]] = {}
    for entry in runs:
        if changed := comparability.variants(entry.content):
            variants.setdefault(entry.label, {}).update(dict.fromkeys(changed))
    unfinished = len(compared.entries) - len(runs) + len(compared.left_out)
    passed = sum(entry.comparable for entry in runs)
    said = [
        f"{passed} of {len(runs)} finished runs passed their fairness check",
        f"{', '.join(failed)} did not" * bool(failed),
        *(f"{who} differs from the recipe: {', '.join(what)}" for who, what in variants.items()),
        f"not everything was the same: {'; '.join(differ)}" * bool(differ),
        "no check compares the networks, which are custom code" * own,
        f"{unfinished} did not finish" * bool(unfinished),
    ]
    verdict = "yes"
    if len({entry.label for entry in runs if not comparability.variants(entry.content)}) < 2:
        verdict = "one framework"
    elif failed or differ or own:
        verdict = "no" if len(failed) == len(runs) else "only in part"
    return Answer(question, verdict, f"{'; '.join(filter(None, said))}.")


def more_devices(compared: Comparison) -> Answer | None:
    """What more devices bring to the training time and to steady state; None without such runs.

    ``training x 0.71 to 1.71, steady state x 0.97 to 1.83``.
    """
    found = scaling.beyond_base(scaling.numbers(compared))
    if found.empty:
        return None
    last = found.loc[found.groupby("series", sort=False)["devices"].idxmax()]
    clean = last[last["flags"].map(len) == 0]
    last = last if clean.empty else clean
    bases, counts = set(last["base"]), set(last["devices"])
    who = "On more devices"
    if len(bases) == len(counts) == 1:
        who = f"On {devices(counts.pop())} instead of {bases.pop()}"
    short, long = [], []
    for column, name in (("time_speed_up", "training"), ("speed_up", "steady state")):
        ends = last.sort_values(column, kind="stable").iloc[[0, -1]]
        texts = [f"{value:.2f}" for value in ends[column]]
        named = [f"{text} ({label})" for text, label in zip(texts, ends["label"], strict=True)]
        short.append(f"{name} x {' to '.join(dict.fromkeys(texts))}")
        long.append(f"{name} is {' to '.join(dict.fromkeys(named))} times as fast")
    return Answer("More devices", ", ".join(short), f"{who}, {long[0]}, and {long[1]}.")


def listed(texts: Iterable[str], word: str = "and") -> str:
    """``A``, ``A and B``, ``A, B and C``; nothing of nothing."""
    found = list(texts)
    if len(found) < 2:
        return "".join(found)
    return f"{', '.join(found[:-1])} {word} {found[-1]}"
