"""Name the devices of a run that are slower than the others, and the rank that all wait for.

*Before training*: after each trial of the training-loop check every process multiplies matrices on
each of its devices, and copies one to each of its GPUs, in turns of a tenth of a second
(``helpers.training.arithmetic``). A device's best turn counts, because other programs can only make
a turn longer. An all-reduce would name no device: it ends at the same time on all of them. *While
training*: all ranks end a step together, so the slowest rank of a step is the one that waited least
for gradients (``helpers.training.step_parts``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from helpers.fairness.training_loop import Trial
from helpers.networks.weights import Arrays
from helpers.training import arithmetic
from helpers.training.work import Work
from helpers.training.world import World

Rates = Mapping[str, Sequence[float]]
"""By the record's name the rate of each device, in the order of the devices."""
COMPARED: Mapping[str, Callable[[float], str]] = {
    "flops_per_second": lambda rate: f"a matrix product reaches {arithmetic.giga(rate)} GFLOP/s",
    "copied_bytes_per_second": lambda rate: f"a copy from the host reaches {rate / 1e9:.1f} GB/s",
}
"""What is compared, and how a sentence says it."""
SLOWER = 0.10
"""A device is slow if one of its rates is below the devices' median by more than this share."""
LIKELY = 0.05
"""Up to this chance a count of steps is more than luck."""
TURNS = 4
"""Turns of a process after a trial, shared out among its devices, with one for each at least."""


def checked_trial(
    world: World, work: Work, trial: Trial
) -> tuple[tuple[float, Arrays, np.ndarray], Rates]:
    """A trial's result, and the best rates of each of this process's devices after it.

    There are none where devices share hardware, as replicas on one GPU, simulated nodes, and
    CPU devices of one process: its threads run on the cores of all of them.
    """
    from helpers.training import train_loop  # imports scipy.stats, which no report needs

    result = train_loop.check_training_loop(world, work, trial)
    shares = world.shares_gpus or world.simulated_nodes
    if world.size == 1 or shares or (not world.on_gpu and len(world.devices) > 1):
        return result, {}
    alone = [replace(world, devices=(device,)) for device in world.devices]
    how = work.framework, work.recipe.recipe.precision
    flops, nbytes = arithmetic.flops_of_product(world.kind, 1), arithmetic.bytes_of_copy(world.kind)
    turns: list[dict[str, list[float]]] = []
    for _ in range(max(1, TURNS // len(alone))):
        turn = {"flops_per_second": [flops / arithmetic.seconds_a_product(o, *how) for o in alone]}
        if world.on_gpu:
            copies = [nbytes / arithmetic.seconds_a_copy(o, work.framework) for o in alone]
            turn["copied_bytes_per_second"] = copies
        turns.append(turn)
    return result, best(turns)


def best(turns: Sequence[Rates]) -> dict[str, list[float]]:
    """The best rates of each device."""
    return {
        name: [max(each) for each in zip(*(turn[name] for turn in turns), strict=True)]
        for name in turns[0]
    }


def joined(processes: Sequence[Rates]) -> dict[str, list[float]]:
    """The rates of all devices, from those that each process measured."""
    return {name: [rate for each in processes for rate in each[name]] for name in processes[0]}


def slow(rates: Sequence[float]) -> dict[int, float]:
    """The slow devices by number, with the share by which each is below the median.

    Two devices have no median to speak of, so the faster one takes its place.
    """
    if len(rates) < 2:
        return {}
    usual = max(rates) if len(rates) == 2 else median(rates)
    below = {number: 1 - rate / usual for number, rate in enumerate(rates)}
    return {number: share for number, share in below.items() if share > SLOWER}


def sentences(content: Mapping[str, Any]) -> list[str]:
    """What a record tells before training: the slow devices, and GPU models that are mixed."""
    found = content["devices"]
    names, ranks, count = found["names"], len(_hosts(content)), found["count"]
    other = "the other device" if count == 2 else f"the median of all {count} devices"
    said = []
    for compared, words in COMPARED.items():
        rates = found.get(compared, [])
        for number, share in slow(rates).items():
            rank = f"{place(content, number * ranks // count)}, " if ranks else ""
            said.append(
                f"Device {number} ({rank}{names[number]}) is slow: {words(rates[number])}, "
                f"{100 * share:.0f} % below {other}."
            )
    if len(models := _models(content)) > 1:
        said.append(f"The GPUs differ ({', '.join(models)}): the slowest sets the pace.")
    return said


def slowest_rank(content: Mapping[str, Any]) -> str:
    """The rank that was the slowest in the most steps, in a sentence; nothing of one rank.

    Nor where one of equal ranks would be the slowest as often in over 5 % of runs.
    """
    rows = content.get("training", {}).get("step_times", [])
    counts = [row["slowest"] for row in rows]
    if len(rows) < 2 or None in counts:
        return ""
    most = max(range(len(rows)), key=counts.__getitem__)
    steps = rows[most]["steps"]
    from scipy.stats import binomtest  # takes half a second, which the first step need not wait

    chance = binomtest(counts[most], steps, 1 / len(rows), alternative="greater").pvalue
    if chance * len(rows) > LIKELY:  # for any of them (Bonferroni)
        return ""
    share = 100 * counts[most] / steps
    return (
        f"{place(content, most).capitalize()} was the slowest in {share:.0f} % of {steps} steps: "
        "it waited least for gradients."
    )


def place(content: Mapping[str, Any], rank: int) -> str:
    """``rank 3 on node2``; on one machine ``rank 3``."""
    host = _hosts(content).get(rank)
    return f"rank {rank}" if host is None else f"rank {rank} on {host}"


def _hosts(content: Mapping[str, Any]) -> dict[int, str]:
    """The host of each rank, where a launcher started them."""
    hosts = content.get("cluster", {}).get("hosts", [])
    return {rank: host["name"] for host in hosts for rank in host["ranks"]}


def _models(content: Mapping[str, Any]) -> list[str]:
    """The models of the run's GPUs on all nodes; each node uses its first ones."""
    found, cluster = content["devices"], content.get("cluster", {"nodes": 1, "hosts": []})
    if found["kind"] == "cpu":
        return []
    each = found["count"] // cluster["nodes"]
    others = [name for host in cluster["hosts"] for name in host["gpus"][:each]]
    return list(dict.fromkeys([*found["names"], *others]))
