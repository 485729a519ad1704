"""On the first of several hosts: ranks on all of them measure their network; prints what, as JSON.

python tests/kernels/on_hosts.py FOLDER NODES
"""

import json
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ranks_tools
import torch
import torch.distributed as dist

import gpumon
from helpers.frameworks import place
from helpers.frameworks import pytorch as framework
from helpers.launch import clocks, samplers
from helpers.training import bus_bandwidth
from helpers.training.world import World


def measured(run: Path, kernel: str) -> tuple[Any, clocks.Meetings]:
    """On a rank: the all-reduce of half a megabyte of gradients, and its clock."""
    here = place.here()
    assert here is not None
    marks = (
        samplers.of_rank(run, here)
        if socket.gethostname() != kernel
        else gpumon.Marker("/dev/null")
    )
    samplers.follow(marks, True)
    dist.init_process_group("gloo", init_method="env://", rank=here.rank, world_size=here.ranks)
    world = World(here.rank, here.ranks, (torch.device("cpu"),), "cpu", 0, here.nodes, here.node)
    with marks.phase("all-reduce alone"):
        found = bus_bandwidth.measure(
            world, framework, SimpleNamespace(network=torch.nn.Linear(350, 350))
        )
    met = clocks.meet(lambda: framework.slowest(0.0, world.devices))
    dist.destroy_process_group()
    samplers.follow(marks, False)
    return found, met


def main(run: Path, nodes: int) -> None:
    kernel = socket.gethostname()
    with gpumon.Monitor(run / "trace"):
        ranks = ranks_tools.start(run, nodes=nodes)
        asked = time.monotonic()
        try:
            each = ranks.call(measured, run, kernel)
        finally:
            ranks.end()
        answered = time.monotonic()
    bounds = clocks.of_each([met for _, met in each], clocks.Round(asked, answered))
    interface = ", ".join(ranks.interfaces)
    told = {
        "hosts": ranks.hosts,
        "virtual": ranks.virtual,
        "all_reduce": bus_bandwidth.as_record(each[0][0], devices=nodes, interface=interface),
        "bounds": bounds,
        "clocks": samplers.align(run, dict(enumerate(bounds)), ranks.hosts),
    }
    trace = samplers.read(run)
    told["devices"] = [device["name"] for device in trace.devices]
    told["phases"] = trace.phases()["phase"].tolist()
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
