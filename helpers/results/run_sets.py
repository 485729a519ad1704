"""Name sets of runs in few words, for tables whose rows hold for several runs."""

from collections.abc import Iterable

from helpers.results.comparison import Entry, devices

EVERY = "every run"


def named(runs: Iterable[Entry], of: Iterable[Entry]) -> str:
    """``runs`` in words, as a part of the runs ``of``.

    ``every run``; ``every run on 2 devices``; ``Keras, Chainer`` where all runs of a label are
    meant; else each run by its name: ``Keras; PyTorch, 2 devices``.
    """
    chosen, every = _by_label(runs), _by_label(of)
    if chosen == every and (len(every) > 1 or len(*every.values()) > 1):
        return EVERY
    counts = {count for counts in chosen.values() for count in counts.values()}
    on = {
        label: {run: count for run, count in found.items() if count in counts}
        for label, found in every.items()
    }
    if len(counts) == 1 and len(chosen) > 1 and chosen == {k: v for k, v in on.items() if v}:
        count = counts.pop()
        return EVERY if count is None else f"{EVERY} on {devices(count)}"
    whole = [label for label, found in chosen.items() if found == every[label]]
    single = [run for label, found in chosen.items() if label not in whole for run in found]
    return "; ".join(filter(None, [", ".join(whole), *single]))


def _by_label(runs: Iterable[Entry]) -> dict[str, dict[str, int | None]]:
    """By label the names of its runs, with their numbers of devices."""
    found: dict[str, dict[str, int | None]] = {}
    for entry in runs:
        found.setdefault(entry.label, {})[entry.run] = entry.devices
    return found
