"""Answer the report's questions in a few sentences: speed, fairness, waiting times, scaling.

The last question is answered if runs on several numbers of devices tried to reach a target."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from helpers.fairness import check_results
from helpers.results import best, comparability, paired_test, repeated_runs, wait_causes
from helpers.results import headline as words
from helpers.results.comparability import RANKED, marked
from helpers.results.comparison import Comparison, Entry, devices, widest
from helpers.results.headline import listed
from helpers.results.ranking import ranked, unranked
from helpers.results.runs import frame
from helpers.results.scaling import speed, speedup_factors
from helpers.results.shared_settings import differences, of_own_networks, off_the_recipe, unequal
from helpers.results.tables import share, time_text
from helpers.training import attribution

UNRANKED = "not ranked here"
"""The verdict on speed where the devices rank nothing."""
_NAMES = {"data": "data", "communication": "each other", "compiling": "compiling"}


@dataclass(frozen=True)
class Answer:
    """question: in a word or two; verdict: the answer at a glance; text: the evidence.

    figure: what the verdict rests on, for the page's cards; "" if it is the verdict.
    """

    question: str
    verdict: str
    text: str
    figure: str = ""


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
    variants, on = _variants(compared.finished), words.machine(compared)
    if unranked(compared) is not None:
        fair = fairness(compared).verdict == "yes"
        said = f"{_frameworks(compared)} trained{' the same network' * fair} on {on}"
        parts = [said, *variants, _is_fair(compared), "speed is not ranked here"]
    else:
        named = words.order_said(compared)
        parts = [f"On {on}, {named[0]}", *named[1:], *variants, _is_fair(compared)]
    return f"{'; '.join(parts)}."


def _is_fair(compared: Comparison) -> str:
    verdict, variants = fairness(compared).verdict, _variants(compared.finished)
    labels = {entry.label for entry in ranked(compared)}
    if verdict == "yes" and not variants and len(labels) > 1:
        return words.fairly(len(labels))
    of = "the comparison of the others" if variants else "the comparison"
    return {
        "yes": f"{of} is fair",
        "no": f"{of} is not fair",
        "only in part": f"{of} is only partly fair",
        "one framework": _alone(compared),
    }[verdict]


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
    """Who is best on the most devices by each measure (``best``), training time first.

    No framework is named if no run is ranked, and several if they may all be the best.
    """
    question = "Fastest"
    if not compared.finished:
        return Answer(question, "unknown", "No run has finished.")
    if (why := unranked(compared)) is not None:
        return Answer(question, UNRANKED, f"{why} {_shown(compared)}")
    if (why := unequal(compared)) is not None:
        return Answer(question, "unknown", f"{why} The frameworks are not ranked.")
    rows = repeated_runs.field(compared)
    times = {marked(row["label"], row["marks"]): row["seconds"] for _, row in rows.iterrows()}
    time = best.orders(frame(compared)).get("seconds")
    if time is None:
        on = devices(rows["devices"].iloc[0])
        each = "; ".join(f"{label} {time_text(seconds)}" for label, seconds in times.items())
        return Answer(question, "unknown", f"No run on {on} is comparable: {each}.")
    said = [*words.measured(compared), words.certainty(compared)]
    first = min((times[label] for label in time.best), default=0.0)
    quicker = [
        marked(row["label"], row["marks"])
        for _, row in rows.iterrows()
        if row["marks"] and row["seconds"] < first
    ]
    if quicker:
        said.append(f"Quicker, but not counted: {listed(quicker)}.")
    if rows["kind"].iloc[0] == "cpu":
        said.append("CPU results say nothing about GPUs.")
    verdict = listed(time.best) if time.best else "too noisy to tell"
    figure = f"{verdict}, {time_text(first)}" if time.named == 1 else verdict
    return Answer(question, verdict, " ".join(filter(None, said)), figure)


def fairness(compared: Comparison) -> Answer:
    """Whether the finished runs can be compared, and what speaks against it."""
    question = "Fair?"
    runs = compared.finished
    if not runs:
        return Answer(question, "unknown", "No run has finished.")
    failed = [entry.label for entry in runs if comparability.failed(entry.content)]
    differ = [what for what, _ in differences(runs)]
    checks = check_results.counted(
        check["verdict"] for entry in runs for check in entry.content["fairness"]["checks"]
    )
    passed = sum(entry.comparable for entry in runs)
    text = f"{passed} of {len(runs)} finished runs passed their fairness check"
    if failed:
        text += f"; {', '.join(dict.fromkeys(failed))} did not"
    text += "".join(f"; {variant}" for variant in _variants(runs))
    text += f". Checks: {checks or 'none'}"
    if differ:
        text += f". Not everything was the same: {'; '.join(differ)}"
    own = of_own_networks(runs)
    if own:
        text += ". The networks come from the recipe's custom code; "
        text += "no check can tell whether they are the same"
    unfinished = len(compared.entries) - len(runs) + len(compared.unreadable)
    if unfinished:
        text += f". {unfinished} did not finish"
    verdict = "yes"
    if len({entry.label for entry in runs if not comparability.variants(entry.content)}) < 2:
        verdict = "one framework"
    elif failed or differ or own:
        verdict = "no" if len(failed) == len(runs) else "only in part"
    return Answer(question, verdict, f"{text}.", f"{verdict}, {passed} of {len(runs)} runs")


def waiting(compared: Comparison) -> Answer:
    """What the devices waited for, if the whole interval of that share is above 5 %.

    A wait in more than half of the frameworks is an answer for all; otherwise the runs are named.
    With repeats, every one has to show it.
    """
    question = "Waited for"
    runs = widest(compared.finished)
    if not runs:
        return Answer(question, "unknown", "No run has finished.")
    noisy, waits = wait_causes.noisy(compared), wait_causes.telling(compared)
    doubt = ""
    if noisy:
        names = "every run" if len(noisy) == len(runs) else listed(e.label for e in noisy)
        doubt = f" The rounds are {attribution.NOISY} in {names}."
    if len({(e.label, e.devices) for e in compared.finished}) < len(compared.finished):
        figures = "; the figures are from the last run" if waits else ""
        doubt += f" With repeated runs, a wait counts only if every run shows it{figures}."
    if not waits:
        known = len(wait_causes.bounded(compared))
        verdict = attribution.NOISY if 2 * len(noisy) > len(runs) else "no clear wait"
        verdict = "hardly anything" if 2 * known > len(runs) else verdict
        said = "" if len(noisy) == len(runs) else "No wait's 95 % interval is above 5 %."
        if known:
            more = len(compared.finished) > len(runs)
            said += f" In {known} of {len(runs)} runs no interval exceeds 10 % of an epoch."
            which = f" The {len(runs)} are each framework's last run on the most devices."
            said += which * more
        return Answer(question, verdict, f"{said}{doubt}".strip())
    parts = []
    for wait, those in waits.items():
        whole = "the training" if wait == wait_causes.COMPILING else "an epoch"
        parts.append(f"{wait} took, as a share of {whole}, {_spent(wait, those, len(runs))}")
    wait, those = next(iter(waits.items()))
    verdict = _NAMES[wait]
    if 2 * len(those) <= len(runs):
        verdict += f", in {listed(entry.label for entry, _ in those)} only"
    figure = f"{verdict}, {share(median(found for _, found in those))}"
    said = "; ".join(parts)
    return Answer(question, verdict, f"{said[0].upper()}{said[1:]}.{doubt}", figure)


def more_devices(compared: Comparison) -> Answer | None:
    """What more devices bring to the training time, to steady state and to the time to the target.

    For devices that share a resource, only the number of images is compared (the statistical
    efficiency), because it does not depend on the hardware. None if all runs are on the same number
    of devices.
    """
    verdict, said = words.gains(compared)
    if not speedup_factors.several(compared):
        return Answer("More devices", verdict, said) if verdict else None
    found = speed.beyond_base(speedup_factors.numbers(compared))
    own = found[found["kind"].isin(RANKED)]
    shown = found if own.empty else own
    last = shown.loc[shown.groupby(["series", "kind"], sort=False)["devices"].idxmax()]
    reached = last[last["reached"] == last["runs"]]
    name = "statistical_efficiency" if own.empty else "speed_up"
    if len(last) > 2 and not reached.empty:  # of many, those between which the others are
        last = reached.loc[list(dict.fromkeys([reached[name].idxmin(), reached[name].idxmax()]))]
    to_target = (speedup_factors.sentence(compared, row) for row in last.to_dict("records"))
    text = " ".join(filter(None, [said, *to_target]))
    if own.empty and not reached.empty:
        ends = [reached[name].min(), reached[name].max()]
        span = " to ".join(dict.fromkeys(map(speedup_factors.short, ends)))
        text += " These devices share hardware, so only the images needed apply to other devices."
        return Answer("More devices", f"{span} times the images", text)
    return Answer("More devices", verdict or "target not reached", text)


def _spent(wait: str, those: list[tuple[Entry, float]], runs: int) -> str:
    """The minimum and maximum of many, or both of two."""
    rising = [entry for entry, _ in sorted(those, key=lambda pair: pair[1])]
    said = [f"{wait_causes.cell(entry, wait)} in {entry.run}" for entry in rising]
    if len(said) <= 2:
        return " and ".join(said)
    return f"{said[0]} to {said[-1]}, in {len(said)} of {runs} runs"


def _frameworks(compared: Comparison) -> str:
    names = list(dict.fromkeys(e.content["framework"]["name"] for e in compared.finished))
    return names[0] if len(names) == 1 else f"{len(names)} frameworks"


def _shown(compared: Comparison) -> str:
    """What runs show even if their times rank nothing."""
    runs = compared.finished
    passed = sum(entry.comparable for entry in runs)
    return (
        f"{passed} of {len(runs)} runs ({_frameworks(compared)}) trained from image files to a "
        f"test {compared.task.metric.short} and passed the fairness check"
        f"{'' if of_own_networks(runs) else ', so they trained the same network'}."
        f"{f' {found}.' if (found := _significant(compared)) else ''}"
    )


def _significant(compared: Comparison) -> str:
    """Whose mean AUC or top-1 is significantly different from the reference's; "" if unpaired."""
    found, name = paired_test.differences(compared), compared.task.metric.whole
    if found.empty:
        return ""
    base = found["reference"].iloc[0]
    apart = list(found.index[found["verdict"].isin(["higher", "lower"])])
    if not apart:
        return f"On the same test images, no {name} is significantly different from that of {base}"
    said = [f"that of {run} is {found['verdict'][run]}" for run in apart]
    single = " (one run each: another seed may reverse this)" * bool(found["pairs"].max() == 1)
    return f"Compared with the {name} of {base} on the same test images, {listed(said)}{single}"
