"""Measure the cost of loading: each notebook's training on files, compared with ready noise.

    .venvs/lab/bin/python benchmarks/files.py [--quick] [--frameworks pytorch,mxnet]
                                              [--batch-size 16] [--format png]

Both are the notebook's own `train_epoch` on one device with images of 64 px; on files with its
native loader behind it, at its default number of workers. With `--format memory` it is the recipe
resnet44-cifar10 on a generated CIFAR-10, which is read into memory. They take turns of 16 steps in
one process. Figures are medians, ratios are medians of the rounds' ratios with their interval to
95 % of confidence, 1 where loading costs nothing: by the clock, where that can only be if the
loader alone, timed at the end, is faster than compute; and by the processor's time, where a CPU's
cores also pay for what is read while they compute.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import notebook_loops
from notebook_loops import MEMORY, Take
from turns import report_turns, take_turns

IMAGES = 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=("png", "jpeg", MEMORY), default="png")
    parser.add_argument("--steps", type=int, default=16, help="steps in each turn")
    notebook_loops.for_each_framework(__file__, parser, IMAGES, measure)


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    from helpers.training import loader_workers

    def compare(names: dict[str, Any], noise: Take, files: Take) -> None:
        loads = {"files": files, "noise": noise}
        turns = take_turns(loads, given.batch_size, given.rounds, given.steps)
        what = f"training on {given.format} files"
        if given.format == MEMORY:
            what = "training on CIFAR-10 in memory"
        report_turns(what, framework, turns, "files", "noise", "on noise")
        run = names["this_run"]
        alone = loader_workers.images_per_second(
            run.training_batches, run.workers, given.batch_size
        )
        print(f"  its loader alone: {alone:,.0f} images/s with {run.workers} workers")

    recipe = "resnet44-cifar10" if given.format == MEMORY else "demo"
    notebook_loops.with_loops(framework, folder, given.batch_size, compare, recipe=recipe)


if __name__ == "__main__":
    main()
