"""Compare the notebooks' training loop with a plain one of the same framework.

    .venvs/lab/bin/python benchmarks/step.py [--quick] [--frameworks pytorch,mxnet]
                                             [--batch-size 16] [--steps 48] [--rounds 7]
                                             [--notebook PyTorch_MultiGPU_Exp_Loss] [--devices 2]

Ours is the notebook's own loop as it stands, with all that is in it (the machinery of replicas,
losses kept on the device, the clock that says where the time goes, normalising of grey planes), on
one synthetic batch of 64 px. The rival is a step written by hand (`benchmarks/bare_loops/`) on
images that are normalised already; a process with several devices compares with a step for each.
They take turns in one process, of so many steps that what is done once an epoch (replicas share
BatchNorm's statistics, the loss is read) or once a call of Keras's `fit` is hardly seen: it is no
part of a step. Figures are medians, ratios are medians of the rounds' ratios, above 1 where ours is
faster, with their interval to 95 % of confidence: by the clock, and by the processor's time, which
says on a CPU what a step costs also where other machines share the cores. Many rounds of few steps
find small differences there.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from typing import Any

import inside
import notebook_loops
from notebook_loops import Take
from turns import report_turns, take_turns

from helpers.frameworks import NOTEBOOKS

IMAGES = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=48, help="steps in each turn")
    parser.add_argument("--notebook", default="", help="another one of the framework")
    parser.add_argument("--devices", type=int, default=1)
    notebook_loops.for_each_framework(__file__, parser, IMAGES, measure)


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    inside.require("bare_loops", framework, "bare loop")

    def compare(names: dict[str, Any], noise: Take, files: Take) -> None:
        run = names["run"]
        own = len(run.own_devices)
        loops = importlib.import_module(f"bare_loops.{framework}")
        bare = loops.make(given.pixels, given.batch_size)
        loads = {"ours": noise, "bare": lambda steps: bare(own * steps)}
        turns = take_turns(loads, own * given.batch_size, given.rounds, given.steps)
        if run.rank == 0:
            of = f"{notebook}, {given.devices} devices" if given.devices > 1 else notebook
            report_turns("step", of, turns, "ours", "bare", "a bare loop")

    notebook = given.notebook or NOTEBOOKS[framework]
    devices = {"devices": given.devices}
    notebook_loops.with_loops(notebook, folder, given.batch_size, compare, **devices)


if __name__ == "__main__":
    main()
