"""Where a run's time went, found in three ways that must agree, and said in one sentence.

*From the steps*: in the loop itself, how long the devices waited for the next batch
(``helpers.clock``) and, where the framework lets one see it, for the all-reduce. *By ablation*:
the same steps without loading (synthetic data) and without communication, each a run of its own.
*From the devices*: how busy the monitor saw them. The first is exact about this run and cannot
see inside a compiled step; the second sees everything, but in other conditions; the third knows
nothing of causes. Where two of them differ, one must not trust either.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

NEAR = 0.10
"""Shares of an epoch that differ by no more than this agree: two measurements on a machine that
does other things too are not closer."""


def attribute(
    epochs: Sequence[Mapping[str, Any]],
    *,
    real: float,
    synthetic: float,
    loader: float,
    devices: str,
    silent: float | None = None,
    utilisation: pd.DataFrame | None = None,
    format: str = "",
) -> dict[str, Any]:
    """The record's section ``attribution``: shares of an epoch by each way, and the sentence.

    An epoch on real images takes ``1/real`` seconds an image; on synthetic ones, which need no
    loading, ``1/synthetic``; without communication ``1/silent``. What is between the first two is
    waiting for data, between the second and third synchronisation, and the rest is compute.

    Args:
        epochs: the record's epochs; ``data_seconds`` and ``sync_seconds`` are what the steps saw.
        real, synthetic, loader, silent: images/s over all devices: training on files, on synthetic
            images, the loader with nothing behind it, and synthetic without all-reduce (None on
            one device).
        devices: how to name the devices in the sentence, e.g. "2 virtual CPU devices".
        utilisation: the monitor's summary.
        format: of the image files, so that no advice is given that was taken already.
    """
    # Tracing and autotuning fall into the first epoch and are no property of the others.
    steady = epochs[1:] or epochs
    ablation, steps = _by_ablation(steady, real, synthetic, silent), _from_steps(steady)
    ways: dict[str, Mapping[str, float | None]] = {"ablation": ablation, "steps": steps}
    busy = _busy(utilisation)
    return {
        "shares": ablation,
        "ways": ways,
        "devices_busy": busy,
        "agreement": _agreement(ways, busy),
        "sentence": _sentence(
            steady, real, synthetic, loader, devices, format, ablation, steps["data"]
        ),
    }


def table(found: Mapping[str, Any]) -> pd.DataFrame:
    """The three ways beside each other, in percent of an epoch; what a way cannot see is empty."""
    ways = {f"from the {way}": dict(shares) for way, shares in found["ways"].items()}
    shown = pd.DataFrame(ways).rename(columns={"from the ablation": "by ablation"})
    if busy := found["devices_busy"]:
        shown[f"{busy['device']} busy in training"] = pd.Series({"compute": busy["busy"]})
    return (100 * shown.astype(float)).rename_axis("% of an epoch").round(1)


def doubted(found: Mapping[str, Any]) -> list[str]:
    """On what the ways differ; a figure of it is not to be trusted."""
    return [what for what, said in found.get("agreement", {}).items() if not said["agree"]]


def agreement(found: Mapping[str, Any]) -> str:
    """Whether the ways agree, in a line."""
    apart = [
        f"on {what} by {found['agreement'][what]['difference']:.0%} of an epoch"
        for what in doubted(found)
    ]
    if apart:
        return f"The ways differ {' and '.join(apart)}: trust neither figure there."
    compared = " and ".join(found["agreement"])
    return f"The ways agree on {compared}." if compared else "Only one way could be measured."


def _by_ablation(
    epochs: Sequence[Mapping[str, Any]], real: float, synthetic: float, silent: float | None
) -> dict[str, float]:
    training, validation = _seconds(epochs)
    total = training + validation
    data = training * max(0.0, 1 - real / synthetic)
    # Communication is the same in steps that also wait for data.
    sync = (training - data) * max(0.0, 1 - synthetic / silent) if silent else 0.0
    return {
        "compute": (training - data - sync) / total,
        "data": data / total,
        "synchronisation": sync / total,
        "validation": validation / total,
    }


def _from_steps(epochs: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Synchronisation is None where it cannot be told from compute, and then part of it."""
    training, validation = _seconds(epochs)
    total = training + validation
    waits = [epoch.get("data_seconds") for epoch in epochs]
    if any(wait is None for wait in waits):
        return dict.fromkeys(("compute", "data", "synchronisation")) | {
            "validation": validation / total
        }
    data = min(sum(waits), training)  # type: ignore[arg-type]
    syncs = [epoch.get("sync_seconds") for epoch in epochs]
    sync = None if any(s is None for s in syncs) else min(sum(syncs), training - data)  # type: ignore[arg-type]
    return {
        "compute": (training - data - (sync or 0.0)) / total,
        "data": data / total,
        "synchronisation": None if sync is None else sync / total,
        "validation": validation / total,
    }


def _seconds(epochs: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Training and validation."""
    return (
        sum(epoch["train_seconds"] for epoch in epochs),
        sum(epoch["valid_seconds"] for epoch in epochs),
    )


def _busy(summary: pd.DataFrame | None) -> dict[str, Any] | None:
    """How busy the monitor saw the GPUs while training, else the host's cores; 0 to 1."""
    if summary is None:
        return None
    training = summary[summary["phase"] == "train"].set_index("device")["utilisation mean (%)"]
    for device in ("gpus", "host"):
        if device in training.index and pd.notna(training[device]):
            return {"device": device, "busy": float(training[device]) / 100}
    return None


def _agreement(
    ways: Mapping[str, Mapping[str, float | None]], busy: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """For each share that two ways give: by how much they differ, and whether that is near."""
    pairs: dict[str, tuple[float | None, float | None]] = {
        share: (ways["ablation"][share], ways["steps"][share])
        for share in ("data", "synchronisation")
    }
    if busy is not None and busy["device"] == "gpus":
        # A GPU that waits for data has no work; one that reduces gradients has. The host's cores
        # work in either case.
        waiting, validation = ways["ablation"]["data"], ways["ablation"]["validation"]
        assert waiting is not None and validation is not None
        pairs["GPUs idle"] = (1 - busy["busy"], waiting / (1 - validation))
    return {
        what: {"difference": abs(a - b), "agree": abs(a - b) <= NEAR}
        for what, (a, b) in pairs.items()
        if a is not None and b is not None
    }


_WAYS_OUT = {
    "png": "add workers or use JPEG files (data-prep resize --format jpeg)",
    "jpg": "add workers or pack the images (data-prep pack)",
}
"""By the format of the images; one that has no row leaves nothing but to add workers."""


def _sentence(
    epochs: Sequence[Mapping[str, Any]],
    real: float,
    synthetic: float,
    loader: float,
    devices: str,
    format: str,
    shares: Mapping[str, float],
    waited: float | None,
) -> str:
    """``shares`` are by ablation; ``waited`` is the share of data as the steps saw it."""
    able = f"the {devices} could take {synthetic:,.0f} images/s and took {real:,.0f}"
    alone = f"the loader alone delivers {loader:,.0f}"
    if real >= 0.95 * synthetic:
        said = f"Compute is the limit: {able}; {alone}, so faster loading would change little."
    elif loader < synthetic:
        way_out = _WAYS_OUT.get(format, "add workers")
        said = f"The loader is the limit: {alone}, {able}: {way_out}."
    elif waited is not None and waited < NEAR / 2:
        paces = [epoch["images_per_second"] for epoch in epochs]
        said = (
            f"Compute is the limit: {able}, though waiting for batches took only {waited:.0%} of "
            f"an epoch ({alone}). Loading takes CPU cores from compute, or the machine's pace "
            f"changed (epochs ran at {min(paces):,.0f} to {max(paces):,.0f} images/s)."
        )
    else:
        said = (
            f"Loading and compute hinder each other: {alone}, {able}. They share something, "
            "most often the CPU cores."
        )
    if shares["synchronisation"] > NEAR:
        said += f" The all-reduce takes {shares['synchronisation']:.0%} of an epoch: "
        said += "a larger batch per device would need fewer."
    if shares["validation"] > 2 * NEAR:
        said += f" Validation takes {shares['validation']:.0%} of an epoch."
    return said
