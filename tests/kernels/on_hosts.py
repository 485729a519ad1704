"""On the first of several hosts: ranks on all of them measure their network; prints what, as JSON.

python tests/kernels/on_hosts.py FOLDER NODES
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ranks_tools

from helpers.launch import clocks, exchange, samplers
from helpers.training import bus_bandwidth
from helpers.training.world import World


def measure() -> Any:
    """On a rank: the all-reduce of half a megabyte of gradients, and its clock."""
    import torch
    import torch.distributed as dist

    from helpers.frameworks import pytorch as framework

    here = ranks_tools.here()
    run = here.folder.parent
    marks = samplers.of_process(run, live=False)
    samplers.start(marks)
    exchange.exchange(None)  # else a rank would mark where no sampler is yet
    dist.init_process_group("gloo", init_method="env://", rank=here.rank, world_size=here.ranks)
    world = World(here.rank, here.ranks, (torch.device("cpu"),), "cpu", 0, here.nodes, here.node)
    with marks.phase("all-reduce alone"):
        found = bus_bandwidth.measure(
            world, framework, SimpleNamespace(network=torch.nn.Linear(350, 350))
        )
    met = clocks.meet(lambda: framework.slowest(0.0, world.devices))
    dist.destroy_process_group()
    samplers.stop(marks)
    assert found is not None  # there are several ranks
    each = exchange.exchange((found, met))
    bounds = {rank: clocks.ahead(met, each[0][1]) for rank, (_, met) in enumerate(each)}
    if here.rank:
        return None
    interface = here.about["interface"]
    told = {
        "hosts": here.hosts,
        "virtual": here.virtual,
        "all_reduce": bus_bandwidth.as_record(each[0][0], devices=here.ranks, interface=interface),
        "bounds": list(bounds.values()),
        "clocks": samplers.align(run, bounds, here.hosts),
    }
    trace = samplers.read(run)
    told["devices"] = [device["name"] for device in trace.devices]
    told["phases"] = trace.phases()["phase"].tolist()
    return told


def main(run: Path, nodes: int) -> None:
    cell = "import on_hosts\nimport ranks_tools\nranks_tools.keep(on_hosts.measure())"
    told = ranks_tools.run(run, cell, nodes=nodes, launcher="auto", framework="pytorch")
    print(json.dumps(told[0]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
