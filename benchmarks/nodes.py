"""Compare PyTorch on simulated nodes with a plain script under the same launcher.

    .venvs/lab/bin/python benchmarks/nodes.py [--nodes 2] [--batch-size 16] [--steps 24]

Two figures. *Launch*: the seconds until all ranks have met and run a cell that imports PyTorch and
joins a process group, compared with a script that does the same; both alternate. *Step*: the
notebook's own loop on one synthetic batch, compared with a plain loop with DistributedDataParallel,
by turns on the same ranks. Medians of the rounds, the step's ratio above 1 where ours is faster,
with their 95 % intervals. All nodes are this machine, so the figures show the cost of our code, not
of a network.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import notebook_loops
from turns import report_turns, take_turns

from helpers import network, paths
from helpers.launch import launchers
from helpers.results import intervals
from helpers.runner import ranks

IMAGES = 60
BARE = """
import os, sys
import torch.distributed as dist
from torchvision.models import densenet121
rank, ranks = int(os.environ["PMI_RANK"]), int(os.environ["PMI_SIZE"])
dist.init_process_group("gloo", "tcp://127.0.0.1:" + sys.argv[1], rank=rank, world_size=ranks)
dist.barrier()
if rank == 0:
    print("in", flush=True)
"""
OURS = """
import torch.distributed as dist
from torchvision.models import densenet121
dist.init_process_group("gloo", "env://")
dist.barrier()
"""
STEPS = """
import pickle
import nodes
from helpers.frameworks import place
found = nodes.turns_on_a_rank(*{words!r})
if rank_info.here().rank == 0:
    open({found!r}, "wb").write(pickle.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=24, help="steps in each turn")
    notebook_loops.for_each_framework(__file__, parser, IMAGES, measure, frameworks="pytorch")


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    import pickle

    ours, bare = [], []
    for _ in range(given.rounds):
        bare.append(bare_launch(given.nodes))
        began = time.perf_counter()
        on_ranks(folder / "launch", OURS, given.nodes)
        ours.append(time.perf_counter() - began)
    more = intervals.of_median([a - b for a, b in zip(ours, bare, strict=True)])
    print(
        f"  launch: {intervals.of_median(ours).mean:.1f} s, {more.mean:.1f} s more than a bare "
        f"script ({more.low:.1f} to {more.high:.1f}, {given.rounds} rounds)",
        flush=True,
    )
    found = folder / "turns"
    words = (framework, str(folder), given.pixels, given.batch_size, given.rounds, given.steps)
    on_ranks(folder / "steps", STEPS.format(words=words, found=str(found)), given.nodes)
    turns = pickle.loads(found.read_bytes())
    what = f"step on {given.nodes} simulated nodes"
    report_turns(what, framework, turns, "ours", "bare", "DDP alone")


def on_ranks(folder: Path, cell: str, nodes: int) -> None:
    """Run a cell on all nodes."""
    cells = [{"cell_type": "code", "metadata": {}, "source": cell}]
    order = ranks.Order(launchers.choose("mpiexec", nodes), 1, 1, "cpu", 0, "pytorch")
    there = (paths.ROOT, paths.ROOT / "benchmarks")
    ranks.run(
        json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}),
        folder / "notebook.ipynb",
        order,
        python=Path(sys.executable),
        cwd=paths.ROOT,
        environment={"PYTHONPATH": os.pathsep.join(map(str, there))},
    )


def bare_launch(nodes: int) -> float:
    """Seconds until all processes of a bare script are in a process group."""
    launcher = launchers.choose("mpiexec", nodes)
    words = launcher.command([sys.executable, "-c", BARE, str(network.free_port())], 1)
    environment = os.environ | {"GLOO_SOCKET_IFNAME": network.loopback(network.addresses())[0]}
    began = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None and process.stdout.readline() == "in\n"
        process.wait()
        return time.perf_counter() - began


def turns_on_a_rank(
    framework: str, folder: str, pixels: int, batch: int, rounds: int, steps: int
) -> Any:
    """Both loops' speeds, by turns; all ranks take the same."""
    from bare_loops import pytorch as bare_loop
    from torch.nn.parallel import DistributedDataParallel

    from helpers.launch import exchange
    from helpers.training import train_loop

    with exchange.first_rank_first():  # it makes images
        names = notebook_loops.names_of(framework, Path(folder), batch)
    run = names["this_run"]
    exchange.renew_port()
    work, network = run.work(), run.functions.build_model(run.initial.arrays)
    replica = run.functions.start(run.world, network)
    noise = run.functions.make_fixed_loader(run.world, work.noise(run.world, batch))
    run.functions.ready(replica, [noise])
    loads = {
        "ours": lambda steps: train_loop.take_steps(work, replica, noise, steps),
        # With the switches that the notebook has on.
        "bare": bare_loop.make(
            pixels, batch, fused=True, channels_last=True, wrap=DistributedDataParallel
        ),
    }
    found = take_turns(loads, batch, rounds, steps)
    run.functions.stop(replica)
    return found


if __name__ == "__main__":
    main()
