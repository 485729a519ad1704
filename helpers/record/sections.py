"""Make sections of a record from what was measured."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a process that trains does not need it
    import pandas as pd


def training(
    history: Sequence[Mapping[str, Any]], first_step_seconds: float, resumed_after: int = 0
) -> dict[str, Any]:
    """The section ``training``, from the rows of the section ``epochs``.

    Its rate leaves out the ``resumed_after`` epochs that earlier processes trained, unless the last
    one trained none. The first step includes what the framework traces or tunes in it.
    """
    own = history[resumed_after:] or history
    steady = own[1:] or own
    return {
        "seconds": sum(epoch["train_seconds"] + epoch["valid_seconds"] for epoch in history),
        "images_per_second": median(epoch["images_per_second"] for epoch in steady),
        "first_step_seconds": first_step_seconds,
    }


def throughput(rates: Sequence[float]) -> dict[str, Any]:
    """The section of a measurement, from its rounds' images/s over all devices."""
    return {"images_per_second": median(rates), "rounds": list(rates)}


def other_programs(found: Mapping[str, Any]) -> str:
    """The section ``other_programs`` in words."""
    if found["used"] is None:
        return f"it is not known whether other programs used its cores: {found['reason']}"
    cores = f"{found['cores']} core{'s' * (found['cores'] != 1)}"
    return f"other programs used {round(found['used'], 2):g} of {cores}"


def energy(summary: "pd.DataFrame") -> dict[str, Any]:
    """The section ``energy``: joules of all GPUs while training, from ``Monitor.summary()``."""
    unknown = {"joules": None, "images_per_joule": None}
    gpus = summary[summary["device"] == "gpus"]
    training = gpus[gpus["phase"] == "train"]
    if gpus.empty:
        return unknown | {"reason": "no GPU was measured"}
    if training.empty:
        return unknown | {"reason": "an earlier process had trained every epoch"}
    row = training.iloc[0]
    joules = float(row["energy (J)"])
    if not joules > 0:
        return unknown | {"reason": "the GPUs report no energy, or one of them was lost"}
    # The monitor's own number, because what it could not measure is in neither of its parts.
    per_joule = float(row.get("items/J", row["items"] / joules))
    return {"joules": joules, "images_per_joule": per_joule, "reason": None}


def memory(summary: "pd.DataFrame", held: int | None = None) -> dict[str, Any]:
    """The section ``memory``: the peak of the fullest device, of GPUs by ``Monitor.summary()``.

    ``held`` is that of the fullest CPU device: the most bytes that its process held in training,
    divided by the devices of that process.
    """
    if held is not None:
        return {"peak_bytes": held}
    gpus = summary[~summary["device"].isin(["gpus", "host"])]
    column = "memory peak (MiB)"
    peak = gpus[column].max() if column in gpus else float("nan")
    # NaN where none of them reported it.
    return {"peak_bytes": round(float(peak) * 2**20) if peak >= 0 else None}
