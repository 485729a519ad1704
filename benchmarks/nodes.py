"""What two virtual nodes cost beside a bare script under the same launcher: PyTorch.

    .venvs/lab/bin/python benchmarks/nodes.py [--quick] [--batch-size 16] [--steps 24] [--rounds 7]

Two figures. *Launch*: the seconds from the first call of a run to its answer by both ranks (the
engine, the meeting, the notebook's cells on each), beside a script that imports PyTorch, joins a
process group and leaves; they take turns. *Step*: the notebook's own loop on one synthetic batch,
beside a loop written by hand with DistributedDataParallel, by turns on the same two ranks. Medians
of the rounds, the step's ratio above 1 where ours is faster, with their intervals to 95 % of
confidence. Both nodes are this machine, so this says what our code costs, and nothing of a network.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import inside
import notebook_loops
from turns import take_turns

from helpers import network
from helpers.launch import engines
from helpers.results import intervals

IMAGES = 60
NODES = 2
BARE = """
import os, sys
import torch.distributed as dist
from torchvision.models import densenet121
rank = int(os.environ["PMI_RANK"])
dist.init_process_group("gloo", "tcp://127.0.0.1:" + sys.argv[1], rank=rank, world_size=2)
dist.barrier()
if rank == 0:
    print("in", flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=24, help="of a turn")
    notebook_loops.for_each_framework(__file__, parser, IMAGES, measure, frameworks="pytorch")


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    names = notebook_loops.names_of(framework, folder, given.batch_size, nodes=NODES)
    run = names["this_run"]
    ours, bare = [], []
    for _ in range(given.rounds):
        bare.append(bare_launch())
        run.nodes.end()
        began = time.perf_counter()
        run.everywhere(nothing)
        ours.append(time.perf_counter() - began)
    more = intervals.of_median([a - b for a, b in zip(ours, bare, strict=True)])
    print(
        f"  launch: {intervals.of_median(ours).mean:.1f} s, {more.mean:.1f} s more than a bare "
        f"script ({more.low:.1f} to {more.high:.1f}, {given.rounds} rounds)",
        flush=True,
    )
    words = (given.pixels, given.batch_size, given.rounds, given.steps)
    found = run.with_replica(turns_on_a_rank, run.initial.arrays, 0, *words)
    inside.report_turns("step on 2 virtual nodes", framework, found[0], "ours", "bare", "DDP alone")
    run.nodes.end()


def nothing(world: Any, work: Any) -> None:
    """What every rank does in no time."""


def bare_launch() -> float:
    """Seconds until both processes of a bare script are in a process group."""
    engine = engines.choose("mpiexec", NODES)
    words = engine.command([sys.executable, "-c", BARE, str(network.free_port())], 1)
    environment = os.environ | {"GLOO_SOCKET_IFNAME": network.loopback(network.addresses())[0]}
    began = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None and process.stdout.readline() == "in\n"
        return time.perf_counter() - began


def turns_on_a_rank(
    world: Any, work: Any, replica: Any, pixels: int, batch: int, rounds: int, steps: int
) -> Any:
    """Both loops' speeds, by turns; all ranks take the same."""
    from bare_loops import pytorch as bare_loop
    from torch.nn.parallel import DistributedDataParallel

    from helpers.training import in_world

    noise = work.lesson.make_fixed_loader(world, work.noise(world, batch))
    work.lesson.ready(replica, [noise])
    loads = {
        "ours": lambda steps: in_world.take_steps(work, replica, noise, steps),
        # With the switches that the notebook has on.
        "bare": bare_loop.make(
            pixels, batch, fused=True, channels_last=True, wrap=DistributedDataParallel
        ),
    }
    return take_turns(loads, batch, rounds, steps)


if __name__ == "__main__":
    main()
