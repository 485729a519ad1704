"""Attribute a run's time to loading, compute and communication, and sum it up in one sentence.

*By ablation*: section 11 takes away loading and then communication, in rounds that take turns;
what each saves is its share, with the spread of the rounds as its interval. *From the steps*: in
the training loop itself, how long the devices waited for the next batch
(``helpers.training.step_clock``).
*From the devices*: how busy the monitor saw them. The first sees everything, but in other
conditions; the second is exact about this run and cannot see inside a compiled step; the third
knows nothing of causes.

Implausible results are marked: a run that was faster on files than on synthetic data, beyond the
interval, is *invalid* here. A sentence mentions a share only if it differs from zero and exceeds
the difference between the ways.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import pandas as pd

from helpers.training import measurement_rounds
from helpers.training.run_tables import MISSING

LITTLE = 0.05
"""A share of an epoch below this is not worth a sentence; ways no further apart agree."""
WAITS = ("data", "communication")
LONGEST_WAIT = 10
"""A wait for data is noise if it is more than so many times the loader's own time for a batch."""

Shares = dict[str, float | None]


def attribute(
    history: Sequence[Mapping[str, Any]],
    measured: Mapping[str, Mapping[str, Any]],
    *,
    devices: str,
    utilisation: pd.DataFrame | None = None,
    way_out: str = "",
    resumed_after: int = 0,
    cluster: Mapping[str, Any] | None = None,
    replicas: int = 1,
) -> dict[str, Any]:
    """The record's section ``attribution``: shares of an epoch by each way, and the sentence.

    A share can be below zero: then the rounds measured no wait.

    Args:
        history: the record's epochs; ``data_seconds`` is what the steps saw.
        measured: the record's sections ``files``, ``synthetic``, ``loader`` and, with more than
            one device, ``no_allreduce``: images/s in rounds.
        devices: how to name the devices in the sentence, e.g. "2 CPU devices".
        utilisation: the monitor's summary.
        way_out: what to change where the loader is the limit (``loader_advice.first_change``).
        resumed_after: epochs of another process, which are left out.
        cluster: the record's, of a run on ranks; between real machines the all-reduce is a network.
        replicas: how many devices trained; of several, ``no_allreduce`` may be impossible.
    """
    own = history[resumed_after:]
    # Tracing and autotuning fall into a process's first epoch and are no property of the others.
    epochs = own[1:] or own or history
    ablation, intervals = _by_ablation(epochs, measured)
    steps = _from_steps(epochs)
    busy = _busy(utilisation)
    if own and replicas > 1 and "no_allreduce" not in measured:
        invalid: str | None = measurement_rounds.IMPOSSIBLE
    else:
        invalid = _invalid(epochs, measured) if own else "an earlier process trained every epoch"
    found: dict[str, Any] = {
        "shares": ablation
        if invalid is None
        else dict.fromkeys(ablation) | {"validation": ablation["validation"]},
        "intervals": intervals,
        "invalid": invalid,
        "ways": {"ablation": ablation, "steps": steps},
        "devices_busy": busy,
        "agreement": _agreement(ablation, intervals, steps, busy),
    }
    network = cluster is not None and cluster["nodes"] > 1 and not cluster["simulated"]
    said = _sentence(found, epochs, measured, devices, way_out, network=network)
    return found | {"sentence": said}


def table(found: Mapping[str, Any]) -> pd.DataFrame:
    """The three ways side by side, as text in percent of an epoch.

    A part that a way cannot see is ``MISSING``.
    """
    shown = pd.DataFrame({"by ablation": found["ways"]["ablation"]})
    for end, name in enumerate(("minimum", "maximum")):
        shown[name] = pd.Series({share: ends[end] for share, ends in found["intervals"].items()})
    shown["from the steps"] = pd.Series(found["ways"]["steps"])
    if busy := found["devices_busy"]:
        shown[f"{busy['device']} busy in training"] = pd.Series({"compute": busy["busy"]})
    percent = 100 * shown.astype(float).rename_axis("% of an epoch")
    text = percent.apply(lambda column: column.map("{:.1f}".format, na_action="ignore"))
    return text.fillna(MISSING)


def doubted(found: Mapping[str, Any]) -> list[str]:
    """The shares on which the ways differ; such a figure is uncertain by that difference."""
    return [what for what, said in found.get("agreement", {}).items() if not said["agree"]]


def telling(found: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, float]:
    """The waits that a sentence may mention, with their shares of an epoch.

    Such a wait is at least ``LITTLE``, above zero in every round, and larger than the difference
    between the ways of measuring. Without rounds there is none. With many runs, all rounds of one
    can agree by chance, so ``LONGEST_WAIT`` also limits the wait for data.

    Args:
        found: the record's section ``attribution``.
        measured: the record, or its sections ``files`` and ``loader``.
    """
    if found.get("invalid"):
        return {}
    significant = {}
    for wait in WAITS:
        share = found["shares"].get(wait)
        least = found.get("intervals", {}).get(wait, (0.0, 0.0))[0]
        apart = found.get("agreement", {}).get(wait, {}).get("difference", 0.0)
        if share is not None and share >= LITTLE and least > 0 and share > apart:
            significant[wait] = share
    if "data" in significant and significant["data"] > LONGEST_WAIT * _needed_to_load(measured):
        del significant["data"]
    return significant


def _needed_to_load(measured: Mapping[str, Any]) -> float:
    """The share of a step on files that the loader alone takes for its batch."""
    return float(measured["files"]["images_per_second"] / measured["loader"]["images_per_second"])


def leaves_little(found: Mapping[str, Any]) -> bool:
    """Whether the rounds leave room for no more than twice ``LITTLE`` of any wait, undisputed."""
    ends, disputed = found.get("intervals", {}), doubted(found)
    return not found.get("invalid") and all(
        wait in ends and ends[wait][1] <= 2 * LITTLE and wait not in disputed for wait in WAITS
    )


def agreement(found: Mapping[str, Any]) -> str:
    """Whether the ways agree, in a line."""
    every, apart = found["agreement"], doubted(found)

    def listed(some: Sequence[str]) -> str:
        return " and ".join(
            f"on {what} by {_percent(every[what]['difference'])} of an epoch" for what in some
        )

    if apart:
        return f"The ways differ {listed(apart)}: no figure is more certain than that."
    if not every:
        return "Only one way of measuring was possible."
    near = [what for what, said in every.items() if said["difference"] <= LITTLE]
    sentences = []
    if near:
        sentences.append(
            f"The ways agree on {' and '.join(near)}, within {_percent(LITTLE)} of an epoch."
        )
    if far := [what for what in every if what not in near]:
        sentences.append(f"The ways differ {listed(far)}, within half the range of the rounds.")
    return " ".join(sentences)


def _by_ablation(
    epochs: Sequence[Mapping[str, Any]], measured: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Shares of an epoch, which add up to 1, and the minimum and maximum of each."""
    training = [e["train_seconds"] / (e["train_seconds"] + e["valid_seconds"]) for e in epochs]
    trained = median(training)
    files, synthetic = (measured[kind]["rounds"] for kind in ("files", "synthetic"))
    no_allreduce = measured["no_allreduce"]["rounds"] if "no_allreduce" in measured else synthetic
    each = list(zip(files, synthetic, no_allreduce, strict=True))
    # A step on files takes 1/f, on synthetic data 1/s, without all-reduce 1/q seconds an image.
    computing = [trained * f / q for f, s, q in each]
    waiting = [trained * (1 - f / s) for f, s, q in each]
    reducing = [trained * (f / s - f / q) for f, s, q in each]
    data, compute = median(waiting), median(computing)
    shares = {
        "compute": compute,
        "data": data,
        "communication": trained - data - compute,
        "validation": 1 - trained,
    }
    ends = {"compute": computing, "data": waiting, "communication": reducing}
    ends["validation"] = [1 - share for share in training]
    return shares, {share: [min(values), max(values)] for share, values in ends.items()}


def _from_steps(epochs: Sequence[Mapping[str, Any]]) -> Shares:
    """Communication is None: the loop cannot separate it from compute, which includes it."""

    def total(field: str) -> Any:
        """None where an epoch does not tell."""
        each = [epoch.get(field) for epoch in epochs]
        return None if None in each else sum(each)

    training, validation = total("train_seconds"), total("valid_seconds")
    data = total("data_seconds")
    seconds: Shares = dict.fromkeys(("compute", "data", "communication"))
    seconds["validation"] = validation
    if data is not None:
        seconds |= {"compute": training - data, "data": data}
    whole = training + validation
    return {share: None if each is None else each / whole for share, each in seconds.items()}


def _busy(summary: pd.DataFrame | None) -> dict[str, Any] | None:
    """How busy the monitor saw the GPUs while training, else the host's cores; 0 to 1."""
    if summary is None:
        return None
    training = summary[summary["phase"] == "train"].set_index("device")["utilisation mean (%)"]
    for device in ("gpus", "host"):
        # With several machines each host is called by its name, too: node1:host.
        own = training[[name.rpartition(":")[2] == device for name in training.index]].dropna()
        if len(own):
            return {"device": device, "busy": float(own.mean()) / 100}
    return None


def _invalid(
    epochs: Sequence[Mapping[str, Any]], measured: Mapping[str, Mapping[str, Any]]
) -> str | None:
    """Why nothing can be taken off: with less to do, training was slower."""
    files, synthetic = measured["files"], measured["synthetic"]
    trained = median(epoch["images_per_second"] for epoch in epochs)
    if all(f > s for f, s in zip(files["rounds"], synthetic["rounds"], strict=True)):
        return (
            f"in every round training on files was faster, {_spread(files)}, than on synthetic "
            f"data, {_spread(synthetic)}"
        )
    if trained > synthetic["high"]:
        return (
            f"the epochs on files were faster, {trained:,.0f} images/s, than synthetic data in "
            f"section 11, {_spread(synthetic)}: the two were measured at different speeds"
        )
    if (alone := measured.get("no_allreduce")) and all(
        q < (1 - LITTLE) * s for s, q in zip(synthetic["rounds"], alone["rounds"], strict=True)
    ):
        return (
            f"in every round training without all-reduce was slower, {_spread(alone)}, than with "
            f"it, {_spread(synthetic)}"
        )
    return None


def _agreement(
    ablation: Mapping[str, float],
    intervals: Mapping[str, Sequence[float]],
    steps: Shares,
    busy: Mapping[str, Any] | None,
) -> dict[str, dict[str, Any]]:
    """For each share that two ways give: by how much they differ, and whether that is near."""
    pairs: dict[str, tuple[float, float | None]] = {
        share: (ablation[share], steps[share]) for share in WAITS
    }
    near = {share: max(LITTLE, (ends[1] - ends[0]) / 2) for share, ends in intervals.items()}
    if busy is not None and busy["device"] == "gpus":
        # A GPU that waits for data has no work; one that reduces gradients has. The host's cores
        # work in either case.
        pairs["GPUs idle"] = ablation["data"] / (1 - ablation["validation"]), 1 - busy["busy"]
        near["GPUs idle"] = near["data"]
    return {
        what: {"difference": abs(a - b), "agree": abs(a - b) <= near[what]}
        for what, (a, b) in pairs.items()
        if b is not None
    }


def _sentence(
    found: Mapping[str, Any],
    epochs: Sequence[Mapping[str, Any]],
    measured: Mapping[str, Mapping[str, Any]],
    devices: str,
    way_out: str,
    *,
    network: bool,
) -> str:
    if found["invalid"]:
        return f"Invalid: {found['invalid']}. It is not known what the devices waited for."
    files, synthetic, loader = (measured[kind] for kind in ("files", "synthetic", "loader"))
    able = (
        f"{devices} processed {_spread(files)} from files and {_spread(synthetic)} "
        "of synthetic data in memory"
    )
    loads = f"the loader alone delivers {_spread(loader)}"
    significant, data = telling(found, measured), found["shares"]["data"]
    if network and significant.get("communication", 0.0) > max(found["shares"]["compute"], data):
        reduced = f"the all-reduce takes {_share(found, 'communication')}"
        said = f"The network between the nodes is the limit: {reduced}; {able}."
        if "data" in significant:
            said += f" Waiting for data takes {_share(found, 'data')}; {loads}."
        return said + _validation(found) + _pace(epochs, files)
    (least, most), share = found["intervals"]["data"], _share(found, "data")
    if "data" not in significant:
        above = least > 0 and data >= LITTLE
        doubt = ", less than the difference between the ways of measuring" if above else ""
        waited = found["ways"]["steps"]["data"]
        seen = "" if waited is None else f", in the loop itself as {_percent(waited)}"
        # Either way can tell, unless they differ: the rounds leave room for little, or the loop
        # saw hardly any wait.
        little = most <= 2 * LITTLE or (waited is not None and waited < LITTLE)
        is_certain = little and "data" not in doubted(found)
        limit = _limit(found) if is_certain else "The limit cannot be determined"
        said = f"{limit}: {able}. The wait for data was measured as {share}{seen}{doubt}; {loads}."
    elif loader["images_per_second"] < synthetic["images_per_second"]:
        said = "The loader is the limit, "
        said += f"and waiting for it takes {share}: {loads}; {able}."
        said += f" To fix it, {way_out}." if way_out else ""
    else:
        said = (
            f"Loading and compute slow each other down, and waiting takes {share}: {loads}; "
            f"{able}. They share a resource, most often the CPU cores."
        )
    if "communication" in significant:
        said += " Over the network between the nodes the" if network else " The"
        said += f" all-reduce takes {_share(found, 'communication')}: "
        said += "a larger per-device batch would need fewer of them."
    return said + _validation(found) + _pace(epochs, files)


def _validation(found: Mapping[str, Any]) -> str:
    if found["shares"]["validation"] <= 4 * LITTLE:
        return ""
    return f" Validation takes {_share(found, 'validation')}."


def _limit(found: Mapping[str, Any]) -> str:
    """The limit where it is not loading: compute, unless devices may also wait for each other."""
    most = found["intervals"]["communication"][1]
    return "Compute is the limit" if most <= 2 * LITTLE else "Loading is not the limit"


def _pace(epochs: Sequence[Mapping[str, Any]], files: Mapping[str, Any]) -> str:
    """Whether section 11 met the machine as the epochs had met it."""
    paces = [epoch["images_per_second"] for epoch in epochs]
    if min(paces) <= files["high"] and max(paces) >= files["low"]:
        return ""
    return (
        f" The epochs themselves ran at {min(paces):,.0f} to {max(paces):,.0f} images/s, so these "
        "shares were measured at a different speed."
    )


def _spread(found: Mapping[str, Any]) -> str:
    """``96 images/s (94 to 101)``: the median of the rounds, the minimum and maximum."""
    return (
        f"{found['images_per_second']:,.0f} images/s ({found['low']:,.0f} to {found['high']:,.0f})"
    )


def _share(found: Mapping[str, Any], name: str) -> str:
    """``13 % of an epoch (10 % to 15 %)``: with the minimum and maximum of the rounds."""
    least, most = found["intervals"][name]
    return f"{_percent(found['shares'][name])} of an epoch ({_percent(least)} to {_percent(most)})"


def _percent(share: float) -> str:
    return f"{round(100 * share)} %"  # a whole number has no -0
