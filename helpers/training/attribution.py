"""Attribute a run's time to loading, compute and communication, and sum it up in one sentence.

The measurements leave out loading, then communication; what each saves in a round is its share of
an epoch. A share is the median of the rounds, with its 95 % confidence interval.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from helpers.training.measurement_rounds import TRAINED, median_of

LITTLE = 0.05
"""A wait is named if its whole interval is above this share."""
WAITS = ("data", "communication")
WIDEST, LOWEST, HIGHEST = 0.2, -0.1, 1.05
"""The interval of a share that is told is narrower, and between these ends."""
LOADER = "The loader is the limit"
NOISY, NO_WAIT = "too noisy to tell", "no measurable wait"
FORMATS = {
    "png": "use JPEG files (data-prep resize --format jpeg)",
    "jpg": "pack the images (data-prep pack)",
}
"""What is faster than images of a format; ``Study_Loader`` measures that."""
WORKERS = "add workers (--num-workers)"


def attribute(content: Mapping[str, Any], devices: str) -> dict[str, Any]:
    """The record's section ``attribution``: shares of an epoch, and the sentence."""
    history = content["epochs"]
    own = history[content["checkpoint"]["resumed_after"] :]
    # Tracing and autotuning fall into a process's first epoch and are no property of the others.
    epochs = own[1:] or own or history
    found: dict[str, Any] = {"shares": {}, "intervals": {}}
    for name, values in _shares(epochs, content).items():
        found["shares"][name], *found["intervals"][name] = median_of(values)
    whole = sum(epoch["train_seconds"] + epoch["valid_seconds"] for epoch in epochs)
    waited = sum(epoch["data_seconds"] for epoch in epochs) / whole
    return found | {"sentence": _sentence(found, waited, content, devices)}


def is_measured(found: Mapping[str, Any], name: str) -> bool:
    """Whether a share may be reported: its interval is narrow, and possible."""
    low, high = found["intervals"].get(name, (LOWEST, HIGHEST))
    narrow = high - low < WIDEST and low >= LOWEST and high <= HIGHEST
    return found["shares"].get(name) is not None and bool(narrow)


def in_words(found: Mapping[str, Any], name: str) -> str:
    """``13 % (10 to 15)``: a share and its interval; in words if there is no such value."""
    if not is_measured(found, name):
        return NOISY
    low, high = found["intervals"][name]
    if low <= 0:
        return NO_WAIT
    return f"{_percent(found['shares'][name])} ({100 * low:.0f} to {100 * high:.0f})"


def telling(found: Mapping[str, Any]) -> dict[str, float]:
    """The waits that may be named, with their shares of an epoch."""
    return {
        wait: found["shares"][wait]
        for wait in WAITS
        if is_measured(found, wait) and found["intervals"][wait][0] > LITTLE
    }


def leaves_little(found: Mapping[str, Any], waits: Sequence[str] = WAITS) -> bool:
    """Whether the rounds leave room for no more than twice ``LITTLE`` of any of these waits."""
    return all(
        is_measured(found, wait) and found["intervals"][wait][1] <= 2 * LITTLE for wait in waits
    )


def compiling(content: Mapping[str, Any]) -> float:
    """The time of the first step beyond a typical one, as a share of the whole training."""
    training, last = content["training"], content["epochs"][-1]
    mean = {"median": last["train_seconds"] / last["steps"]}  # where no epoch had two steps
    typical = training.get("step_seconds", mean)["median"]
    longer = max(training["first_step_seconds"] - typical, 0.0)
    return min(float(longer / training["seconds"]), 1.0)


def cores(content: Mapping[str, Any]) -> int | None:
    """The number of cores of a run's loaders; None if its record does not contain it."""
    if cpus := content["devices"].get("cpus"):
        return len({core for cpu in cpus for core in cpu["cores"]})
    usable: int | None = content["hardware"].get("usable_cores")
    cluster = content.get("cluster")
    nodes = 1 if cluster is None or cluster["simulated"] else cluster["nodes"]
    return None if usable is None else usable * nodes


def first_change(content: Mapping[str, Any]) -> str:
    """What to change first in a run whose loader is the limit; empty where nothing is known."""
    data, most = content["data"], cores(content)
    if data.get("format") in FORMATS:
        return FORMATS[data["format"]]
    few = most is not None and data.get("loader_workers", most) < most
    return WORKERS if few else ""


def _shares(
    epochs: Sequence[Mapping[str, Any]], measured: Mapping[str, Any]
) -> dict[str, list[float]]:
    """By round; of validation by epoch. Without ``no_allreduce`` only two are known."""
    training = [e["train_seconds"] / (e["train_seconds"] + e["valid_seconds"]) for e in epochs]
    trained = median(training)
    files, synthetic = (measured[kind]["rounds"] for kind in TRAINED)
    # A step on files takes 1/f, on synthetic data 1/s, without all-reduce 1/q seconds an image.
    waiting = [trained * (1 - f / s) for f, s in zip(files, synthetic, strict=True)]
    found = {"data": waiting, "validation": [1 - share for share in training]}
    silent = measured.get("no_allreduce", {}).get("rounds")
    if measured["devices"]["count"] == 1:
        silent = synthetic
    if silent:
        each = list(zip(files, synthetic, silent, strict=True))
        found["compute"] = [trained * f / q for f, s, q in each]
        found["communication"] = [trained * (f / s - f / q) for f, s, q in each]
    return {name: found[name] for name in ("compute", *WAITS, "validation") if name in found}


def _sentence(
    found: Mapping[str, Any], waited: float, content: Mapping[str, Any], devices: str
) -> str:
    """``waited`` is the share in which the training loop's devices had no batch."""
    files, synthetic, loader = (_rate(content[kind]) for kind in (*TRAINED, "loader"))
    limit, first = _limit(found, waited, content), compiling(content)
    shares = ", ".join(f"{name} {in_words(found, name)}" for name in found["shares"])
    said = [
        f"{limit}: {devices} processed {files} from files and {synthetic} of synthetic data in "
        f"memory; the loader alone delivers {loader}. Shares of an epoch: {shares}."
    ]
    if not is_measured(found, "data"):
        waits = _percent(waited)
        said.append(f"The training loop itself waited for data for {waits} of the epochs.")
    if limit == LOADER and (way_out := first_change(content)):
        said.append(f"To fix it, {way_out}.")
    if "communication" in telling(found):
        said.append("A larger per-device batch would need fewer all-reduces.")
    if first > LITTLE:
        seconds = content["training"]["first_step_seconds"]
        said.append(
            f"Compiling takes {_percent(first)} of the training; the first step took "
            f"{seconds:.1f} s."
        )
    return " ".join([*said, "Brackets hold 95 % intervals."])


def _limit(found: Mapping[str, Any], waited: float, content: Mapping[str, Any]) -> str:
    """What limits training; the training loop itself tells where the rounds are too noisy."""
    waits, cluster = telling(found), content.get("cluster")
    network = cluster is not None and cluster["nodes"] > 1 and not cluster["simulated"]
    others = max(found["shares"].get("compute", 0.0), found["shares"]["data"])
    if network and waits.get("communication", 0.0) > others:
        return "The network between the nodes is the limit"
    if "data" in waits:
        supply, demand = (content[kind]["images_per_second"] for kind in ("loader", "synthetic"))
        return LOADER if supply < demand else "Loading and compute slow each other down"
    noisy = not is_measured(found, "data")
    if not (waited < LITTLE if noisy else leaves_little(found, ["data"])):
        return "The limit cannot be determined"
    # Devices may also wait for each other.
    alone = leaves_little(found, ["communication"])
    return "Compute is the limit" if alone else "Loading is not the limit"


def _rate(found: Mapping[str, Any]) -> str:
    """``96 images/s (94 to 101)``: the median of the rounds and its interval."""
    middle, low, high = median_of(found["rounds"])
    return f"{middle:,.0f} images/s ({low:,.0f} to {high:,.0f})"


def _percent(share: float) -> str:
    return f"{round(100 * share)} %"  # a whole number has no -0
