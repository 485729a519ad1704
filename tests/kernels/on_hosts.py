"""On the first of several hosts: ranks on all of them use their network; prints how, as JSON.

python tests/kernels/on_hosts.py FOLDER NODES
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import ranks_tools

from helpers.launch import exchange, samplers

BYTES = 491_400


def measure() -> Any:
    """On a rank: the seconds of an all-reduce of half a megabyte, and what was sampled."""
    import torch
    import torch.distributed as dist

    here = ranks_tools.here()
    run = ranks_tools.folder()
    marks = samplers.of_process(run, live=False)
    samplers.start(marks)
    exchange.exchange(None)  # else a rank would mark where no sampler is yet
    dist.init_process_group("gloo", init_method="env://", rank=here.rank, world_size=here.ranks)
    vector = torch.zeros(BYTES // 4)
    dist.all_reduce(vector)  # connections are made in the first
    with marks.phase("all-reduce alone"):
        began = time.perf_counter()
        dist.all_reduce(vector)
        seconds = time.perf_counter() - began
    dist.destroy_process_group()
    samplers.stop(marks)
    exchange.exchange(None)  # all have stopped sampling
    if here.rank:
        return None
    told = {
        "hosts": here.hosts,
        "virtual": here.virtual,
        "interface": here.about["interface"],
        "bits_per_second": 8 * BYTES / seconds,
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
