"""Compare runs that differ in how their steps were executed: eagerly, or compiled."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

from helpers.recipe import AS_USUAL, COMPILED, EAGER
from helpers.results import intervals, shared_settings
from helpers.results.comparison import Comparison, Entry


def break_even(compared: Comparison) -> list[str]:
    """After how many epochs compiling has paid for itself, in a sentence for each framework.

    A compiled run is paired with the eager one of the same notebook, devices and seed, or with the
    one executed as is usual. What compiling costs is by how much longer the first epoch takes than
    the median of the others, against the same of the other run.
    """
    pairs: dict[str, list[tuple[Entry, Entry]]] = {}
    for compiled, other in _pairs(compared.finished):
        how = other.content["training"]["execution"]
        pairs.setdefault(f"{compiled.run}, against {how}", []).append((compiled, other))
    return [f"{who}: {_sentence(found)}" for who, found in pairs.items()]


def _pairs(entries: Sequence[Entry]) -> Iterator[tuple[Entry, Entry]]:
    """Runs that differ in their execution alone; of repeats of a run the last counts."""
    by_mode = {(*_alike(entry), _mode(entry.content)): entry for entry in entries}
    for (*same, mode), entry in by_mode.items():
        other = by_mode.get((*same, EAGER)) or by_mode.get((*same, AS_USUAL))
        if mode == COMPILED and other is not None:
            yield entry, other


_mode = shared_settings.MUST_AGREE["execution"]


def _alike(entry: Entry) -> tuple[Any, ...]:
    run, kernel = entry.content["run"], entry.content["framework"]["kernel"]
    settings = shared_settings.all_but("execution", entry.content)
    return run["notebook"], kernel, entry.devices, entry.nodes, *settings


def _sentence(pairs: Sequence[tuple[Entry, Entry]]) -> str:
    fast, slow = (
        [entry.content["training"]["images_per_second"] for entry in side]
        for side in zip(*pairs, strict=True)
    )
    factor = intervals.ratio(fast, slow)
    said = f"{factor.mean:.2f} times as fast (single runs)"
    if len(pairs) > 1:
        said = f"{factor.text()} times as fast"
    known = [(a, b) for one, other in pairs if (a := _epochs(one)) and (b := _epochs(other))]
    if not known:
        return f"{said}; what compiling costs needs two epochs or more in one process"
    costs = [a[0] - b[0] for a, b in known]
    saved = [b[1] - a[1] for a, b in known]
    if median(costs) <= 0:
        return f"{said}; its first epoch does not show what compiling costs"
    said += f"; compiling takes {_ends(costs, '.1f')} s"
    if min(saved) <= 0:
        return f"{said} and does not pay: its later epochs are not shorter in every run"
    paid = [cost / gain for cost, gain in zip(costs, saved, strict=True)]
    return f"{said} and pays after {_ends(paid, '.1f')} epochs of this recipe"


def _epochs(entry: Entry) -> tuple[float, float] | None:
    """How much longer the first epoch took than the others, and the median of these, in seconds.

    None where there is no other, or another process trained some of them.
    """
    epochs = entry.content["epochs"]
    if len(epochs) < 2 or entry.content.get("checkpoint", {}).get("resumed_after"):
        return None
    first, *others = [epoch["train_seconds"] + epoch["valid_seconds"] for epoch in epochs]
    return first - median(others), median(others)


def _ends(values: Sequence[float], form: str) -> str:
    """``3.1``; of several the median and its interval, ``3.1 (2.8 to 3.3)``."""
    return intervals.of_median(values).text(form) if len(values) > 1 else f"{values[0]:{form}}"
