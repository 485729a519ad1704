"""Name sets of runs in few words, for tables whose rows hold for several runs."""

from collections.abc import Iterable, Sequence

from helpers.results.comparison import Entry, devices


def named(runs: Iterable[Entry], of: Sequence[Entry]) -> str:
    """Describe ``runs``, a part of the runs ``of``.

    ``every run``; ``every run on 2 devices``; ``Keras, Chainer`` if all runs of a label are meant;
    otherwise each run by its name: ``Keras; PyTorch, 2 devices``.
    """
    chosen, every = _by_label(runs), _by_label(of)
    if chosen == every and sum(map(len, every.values())) > 1:
        return "every run"
    counts = {count for found in chosen.values() for count in found.values()}
    if len(counts) == 1 and len(chosen) > 1:
        (count,) = counts
        if chosen == _by_label(entry for entry in of if entry.devices == count):
            return "every run" if count is None else f"every run on {devices(count)}"
    whole = [label for label, found in chosen.items() if found == every[label]]
    single = [run for label, found in chosen.items() if label not in whole for run in found]
    return "; ".join(filter(None, [", ".join(whole), *single]))


def _by_label(runs: Iterable[Entry]) -> dict[str, dict[str, int | None]]:
    """The names of each label's runs, with their numbers of devices."""
    found: dict[str, dict[str, int | None]] = {}
    for entry in runs:
        found.setdefault(entry.label, {})[entry.run] = entry.devices
    return found
