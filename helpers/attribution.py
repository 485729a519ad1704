"""Where a run's time went, from its own measurements, and one sentence a person understands."""

from collections.abc import Sequence
from typing import Any


def attribute(
    epochs: Sequence[dict[str, Any]],
    *,
    real: float,
    synthetic: float,
    loader: float,
    devices: str,
) -> dict[str, Any]:
    """Shares of an epoch's time: compute, waiting for data, validation.

    An epoch on real images takes ``1/real`` seconds an image; on synthetic images, which need no
    loading, ``1/synthetic``. What is between them is waiting for data. Synchronisation between
    replicas is inside compute here: it can only be told apart by a run on one device.

    Args:
        epochs: the record's epochs.
        real, synthetic, loader: images/s over all devices: training on files, on synthetic
            images, and the loader with nothing behind it.
        devices: how to name the devices in the sentence, e.g. "2 virtual CPU devices".
    """
    # Tracing and autotuning fall into the first epoch and are no property of the others.
    steady = epochs[1:] or epochs
    validation = sum(epoch["valid_seconds"] for epoch in steady)
    training = sum(epoch["train_seconds"] for epoch in steady)
    total = training + validation
    waiting = training * max(0.0, 1 - real / synthetic)
    shares = {
        "compute": (training - waiting) / total,
        "data": waiting / total,
        "validation": validation / total,
    }
    return {"shares": shares, "sentence": _sentence(real, synthetic, loader, devices)}


def _sentence(real: float, synthetic: float, loader: float, devices: str) -> str:
    able = f"the {devices} could take {synthetic:,.0f} images/s and took {real:,.0f}"
    alone = f"the loader alone delivers {loader:,.0f}"
    if real >= 0.95 * synthetic:
        return f"Compute is the limit: {able}; {alone}, so faster loading would change little."
    if loader < synthetic:
        return f"The loader is the limit: {alone}, {able}. Add workers or use JPEG."
    return (
        f"Loading and compute hinder each other: {alone}, {able}. They share something, "
        "most often the CPU cores."
    )
