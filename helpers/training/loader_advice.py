"""Say what to change first about a loader that delivers less than the devices take.

The rule, in this order: files that cost decoding, then fewer workers than cores, then images on a
filesystem that other machines share. Where a record tells none of these, there is no advice.
"""

from collections.abc import Mapping
from typing import Any

FORMATS = {
    "png": "use JPEG files (data-prep resize --format jpeg)",
    "jpg": "pack the images (data-prep pack)",
}
"""By the format of the images; ``Study_Loader`` measures that these are faster."""
WORKERS = "add workers (--num-workers)"
LOCAL = "copy the images to a local disk"


def cores(content: Mapping[str, Any]) -> int | None:
    """The number of cores of a run's loaders; None if its record does not contain it."""
    if cpus := content["devices"].get("cpus"):
        return len({core for cpu in cpus for core in cpu["loader_cores"]})
    usable: int | None = content["hardware"].get("usable_cores")
    cluster = content.get("cluster")
    nodes = 1 if cluster is None or cluster["simulated"] else cluster["nodes"]
    return None if usable is None else usable * nodes


def first_change(content: Mapping[str, Any]) -> str:
    """What to change first in a run with this record; empty if nothing is known."""
    data = content["data"]
    workers, limit = data.get("loader_workers"), cores(content)
    if data.get("format") in FORMATS:
        return FORMATS[data["format"]]
    if workers is not None and limit is not None and workers < limit:
        return WORKERS
    return LOCAL if data.get("filesystem", {}).get("shared") else ""
