"""The comparison in a few sentences: the fastest, whether that is fair, what devices waited for.

And, where several numbers of devices tried to reach a target, what more of them brought."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from helpers.results import comparability, device_waits, paired
from helpers.results.agreement import differences
from helpers.results.comparability import (
    marked,
    nodes,
    of_own_networks,
    off_the_recipe,
    ranks,
    unequal,
    unranked,
    virtual_nodes,
)
from helpers.results.comparison import Comparison, Entry, devices, latest_of_each, widest
from helpers.results.comparison_tables import short_number, time_text
from helpers.results.repeated_runs import ONE_RUN, summarise
from helpers.results.scaling import split

UNRANKED = "not ranked here"
"""The verdict on speed where the devices rank nothing."""
_NAMES = {"data": "data", "synchronisation": "each other"}


@dataclass(frozen=True)
class Answer:
    """question: in a word or two; verdict: the answer at a glance; text: the evidence."""

    question: str
    verdict: str
    text: str


def answers(compared: Comparison) -> list[Answer]:
    """Fastest, fairness and waiting, from the records alone; and what more devices brought.

    The fourth only where a target was tried on several numbers of devices.
    """
    found = [fastest(compared), fairness(compared), waiting(compared), more_devices(compared)]
    return [answer for answer in found if answer is not None]


def headline(compared: Comparison) -> str:
    """The same in one sentence, for the top of a page; in two where the recipe was changed."""
    if not compared.finished:
        return "No run has finished yet, so there is nothing to compare."
    return " ".join(filter(None, [_in_short(compared), off_the_recipe(compared)]))


def _in_short(compared: Comparison) -> str:
    first, fair, waited = fastest(compared), fairness(compared), waiting(compared)
    machine, variants = _machine(compared), _variants(compared.finished)
    of = "the comparison of the others" if variants else "the comparison"
    is_fair = {
        "yes": f"{of} is fair",
        "no": f"{of} is not fair",
        "only in part": f"{of} is only partly fair",
        "one framework": _alone(compared),
    }[fair.verdict]
    if first.verdict == UNRANKED:
        same = " the same network" if fair.verdict == "yes" else ""
        parts = [f"{_frameworks(compared)} trained{same} on {machine}", *variants, is_fair]
        parts += filter(None, [_told_apart(compared)])
        return f"{'; '.join(parts)}; speed is not ranked here."
    named = (
        f"No framework can be called fastest on {machine}"
        if first.verdict == "nobody"
        else f"{first.verdict} trained fastest on {machine}"
    )
    wait = (
        "what the devices waited for is not known"
        if waited.verdict == "unknown"
        else f"the devices waited for {waited.verdict}"
    )
    return f"{'; '.join([named, *variants, is_fair, wait])}."


def _alone(compared: Comparison) -> str:
    """Why nothing is compared where fewer than two frameworks could be."""
    if not _variants(compared.finished):
        return "there is nothing yet to compare it with"
    sound = list(dict.fromkeys(entry.label for entry in compared.finished if entry.comparable))
    return f"{f'only {sound[0]}' if sound else 'none'} trained as the recipe says"


def _variants(runs: Sequence[Entry]) -> list[str]:
    """``PyTorch no flip trained differently: augmentation (no flip)``, a text a label."""
    found: dict[str, dict[str, None]] = {}
    for entry in runs:
        for variant in comparability.variants(entry.content):
            found.setdefault(entry.label, {})[variant] = None
    return [f"{label} trained differently: {', '.join(what)}" for label, what in found.items()]


def fastest(compared: Comparison) -> Answer:
    """The fastest training among the comparable runs on the most GPUs.

    Nobody is named if the devices rank nothing; several are if they cannot be told apart.
    """
    question = "Fastest"
    if not compared.finished:
        return Answer(question, "nobody", "No run has finished.")
    why = unranked(compared)
    if why is not None:
        return Answer(question, UNRANKED, f"{why} {_shown(compared)}")
    if (why := unequal(compared)) is not None:
        return Answer(question, "nobody", f"{why} Their times rank no framework.")
    numbers = summarise(compared)
    on_gpus = numbers[numbers["kind"] == "gpu"].sort_values("seconds")
    most = int(on_gpus["devices"].max())
    field = [row for _, row in on_gpus.iterrows() if row["devices"] == most]
    clean = [row for row in field if not row["marks"]]
    if not clean:
        told = "; ".join(f"{_marked(row)} {_time(row)}" for row in field)
        text = f"No run on {devices(most)} has comparable times: {told}."
        return Answer(question, "nobody", text)
    best, *others = clean
    level = [row for row in others if not _apart(best, row)]
    text = f"{_time(best)} on {devices(most)}, {short_number(best['images_per_second'])} images/s"
    if level:
        close = ", ".join(f"{row['label']} {_time(row)}" for row in level)
        text += f"; cannot be told apart from it: {close}"
    elif others:
        text += f"; {_lead(best, others[0])}"
    quicker = [_marked(row) for row in field if row["marks"] and row["seconds"] < best["seconds"]]
    if quicker:
        text += f". Faster, but not counted: {_listed(quicker)}"
    return Answer(question, _listed(row["label"] for row in [best, *level]), f"{text}.")


def fairness(compared: Comparison) -> Answer:
    """Whether the finished runs can be compared, and what speaks against it."""
    question = "Fair?"
    runs = compared.finished
    if not runs:
        return Answer(question, "unknown", "No run has finished.")
    failed = [entry.label for entry in runs if comparability.failed(entry.content)]
    differ = [what for what, _ in differences(runs)]
    verdicts = Counter(
        check["verdict"] for entry in runs for check in entry.content["fairness"]["checks"]
    )
    checks = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    passed = sum(entry.comparable for entry in runs)
    text = f"{passed} of {len(runs)} finished runs passed their certificate"
    if failed:
        text += f"; {', '.join(dict.fromkeys(failed))} did not"
    text += "".join(f"; {told}" for told in _variants(runs))
    text += f". Checks: {checks or 'none'}"
    if differ:
        text += f". Not everything was the same: {'; '.join(differ)}"
    own = of_own_networks(runs)
    if own:
        text += ". The networks come from the recipe's own code; "
        text += "no check can tell whether they are the same"
    unfinished = len(compared.entries) - len(runs) + len(compared.unreadable)
    if unfinished:
        text += f". {unfinished} did not finish"
    if len({entry.label for entry in runs if not comparability.variants(entry.content)}) < 2:
        return Answer(question, "one framework", f"{text}.")
    verdict = "yes"
    if failed or differ or own:
        verdict = "no" if len(failed) == len(runs) else "only in part"
    return Answer(question, verdict, f"{text}.")


def waiting(compared: Comparison) -> Answer:
    """What the devices waited for, if it is above zero and above the measurement's uncertainty.

    A wait in more than half of the frameworks is an answer for all; otherwise the runs are named.
    With repeats, every one has to show it.
    """
    question = "Waited for"
    runs = widest(compared.finished)
    if not runs:
        return Answer(question, "unknown", "No run has finished.")
    broken, told = device_waits.invalid(compared), device_waits.telling(compared)
    doubt = ""
    if broken:
        names = "every run" if len(broken) == len(runs) else ", ".join(e.run for e in broken)
        doubt = f" The measurement is invalid in {names}; the sentences of these runs say why."
    if len({(e.label, e.devices) for e in compared.finished}) < len(compared.finished):
        figures = "; the figures are the last one's" if told else ""
        doubt += f" With repeated runs, a wait counts only if every one shows it{figures}."
    if not told:
        known = len(device_waits.bounded(compared))
        verdict = "hardly anything" if 2 * known > len(runs) else "unknown"
        said = "No wait is clearly above zero and above the measurement's uncertainty."
        said = "" if len(broken) == len(runs) else said
        if known:
            more = len(compared.finished) > len(runs)
            which = ", each framework's last on the most devices" * more
            said += (
                f" In {known} of {len(runs)} runs{which}, no round measured a wait above 10 % "
                "of an epoch."
            )
        return Answer(question, verdict, f"{said}{doubt}".strip())
    parts = [f"{wait} took {_spent(wait, those, len(runs))}" for wait, those in told.items()]
    wait, those = next(iter(told.items()))
    verdict = _NAMES[wait]
    if 2 * len(those) <= len(runs):
        verdict += f", in {_listed(entry.label for entry, _ in those)} only"
    return Answer(question, verdict, f"As a share of an epoch, {'; '.join(parts)}.{doubt}")


def more_devices(compared: Comparison) -> Answer | None:
    """How many times as soon the most devices of each series reached the target, and why.

    Of devices that share something only how many times the images were needed: that is learning,
    and holds on any hardware. None where nobody tried several numbers of devices.
    """
    if not split.several(compared):
        return None
    found = split.numbers(compared)
    found = found[found["devices"] > found["base"]]
    ranked = found[found["kind"] == "gpu"]
    shown = found if ranked.empty else ranked
    last = shown.loc[shown.groupby(["series", "kind"], sort=False)["devices"].idxmax()]
    reached = last[last["reached"] == last["runs"]]
    name, unit = ("learning", "the images") if ranked.empty else ("speed_up", "as soon")
    if len(last) > 2 and not reached.empty:  # of many, those between which the others are
        last = reached.loc[list(dict.fromkeys([reached[name].idxmin(), reached[name].idxmax()]))]
    text = " ".join(split.sentences_of(compared, last))
    if reached.empty:
        return Answer("More devices", "target not reached", text)
    low, high = (split.short(end) for end in (reached[name].min(), reached[name].max()))
    verdict = f"{low} times {unit}" if low == high else f"{low} to {high} times {unit}"
    if ranked.empty:
        text += " These devices share something, so only the images needed say something of others."
    return Answer("More devices", verdict, text)


def _spent(wait: str, those: list[tuple[Entry, float]], runs: int) -> str:
    """The minimum and maximum of many, or both of two."""
    ranked = [entry for entry, _ in sorted(those, key=lambda pair: pair[1])]
    said = [f"{device_waits.percent(entry, wait)} in {entry.run}" for entry in ranked]
    if len(said) <= 2:
        return " and ".join(said)
    return f"{said[0]} to {said[-1]}, in {len(said)} of {runs} runs"


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
    runs = "one run each" if best["runs"] == second["runs"] else "one of them a single run"
    return f"{ratio} times as fast as {second['label']}, {runs}"


def _time(row: pd.Series) -> str:
    """``37.8 s (one run)``, ``2:06 (2:01 to 2:12 in 3 runs)``."""
    middle, low, high = (time_text(row[f"seconds{end}"]) for end in ("", "_low", "_high"))
    runs = "one run" if row["runs"] == 1 else f"{low} to {high} in {row['runs']} runs"
    return f"{middle} ({runs})"


def _marked(row: pd.Series) -> str:
    return marked(row["label"], row["marks"])


def _listed(texts: Iterable[str], word: str = "and") -> str:
    """``A``, ``A and B``, ``A, B and C``."""
    *most, last = texts
    return f"{', '.join(most)} {word} {last}" if most else last


def _frameworks(compared: Comparison) -> str:
    names = list(dict.fromkeys(e.content["framework"]["name"] for e in compared.finished))
    return names[0] if len(names) == 1 else f"{len(names)} frameworks"


def _shown(compared: Comparison) -> str:
    """What runs show even if their times rank nothing."""
    runs = compared.finished
    passed = sum(entry.comparable for entry in runs)
    return (
        f"What the runs do show: {passed} of {len(runs)} ({_frameworks(compared)}) went all the "
        f"way from image files to a test {compared.task.metric.short} and passed the certificate"
        f"{'' if of_own_networks(runs) else ' that they train the same network'}"
        f"{f'; {found}' if (found := _told_apart(compared)) else ''}."
    )


def _told_apart(compared: Comparison) -> str:
    """Whose mean AUC or top-1 can be told apart from the reference's; empty if none is paired."""
    found, name = paired.differences(compared), compared.task.metric.whole
    if found.empty:
        return ""
    base = found["reference"].iloc[0]
    apart = list(found.index[found["verdict"].isin(["higher", "lower"])])
    if not apart:
        return f"on the same test images, no {name} can be told apart from that of {base}"
    said = [f"that of {run} is {found['verdict'][run]}" for run in apart]
    single = " (one run each: another seed may say otherwise)" * bool(found["pairs"].max() == 1)
    return f"compared with the {name} of {base} on the same test images, {_listed(said)}{single}"


def _machine(compared: Comparison) -> str:
    """``4 NVIDIA H100``: the most that were used; ``1 and 2 virtual CPU devices``: all numbers.

    ``1 or 2`` where not every framework ran on all of them.

    Where some runs rank, of those.
    """
    entries = [entry for entry in latest_of_each(compared.finished) if entry.devices]
    entries = [entry for entry in entries if ranks(entry.content)] or entries
    last = max(entries, key=lambda entry: entry.devices or 0)
    found = last.content["devices"]
    if found["kind"] == "cpu":
        counts = sorted({entry.devices or 0 for entry in entries})
        every = len(entries) == len(counts) * len({entry.label for entry in entries})
        word = "and" if every else "or"
        many = "s" if counts[-1] > 1 else ""
        return f"{_listed(map(str, counts), word)} virtual CPU device{many}{_nodes(entries)}"
    names = ", ".join(dict.fromkeys(found["names"]))
    if gpus := found.get("shared_gpus"):
        return f"{gpus} {names} shared by {found['count']} replicas"
    return f"{found['count']} {names}{_nodes([last])}"


def _nodes(entries: Sequence[Entry]) -> str:
    """`` of 2 virtual nodes``, `` of 1 and 2 nodes``; nothing where all are one machine."""
    counts = sorted({nodes(entry.content) for entry in entries})
    if counts == [1]:
        return ""
    virtual = "virtual " if any(virtual_nodes(entry.content) for entry in entries) else ""
    return f" of {_listed(map(str, counts))} {virtual}nodes"
