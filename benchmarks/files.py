"""What loading costs: each notebook's training on files beside the same on noise that is ready.

    .venvs/lab/bin/python benchmarks/files.py [--quick] [--frameworks pytorch,mxnet]
                                              [--batch-size 16] [--format png]

Both are the notebook's own `train_epoch` on one device with images of 64 px; on files with its
native loader behind it, at its default number of workers. They take turns of 16 steps in one
process. Figures are medians, ratios are medians of the rounds' ratios, 1 where loading costs
nothing; that can only be where the loader alone, timed at the end, is faster than compute.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import inside
import notebook_loops
from notebook_loops import Take
from turns import take_turns

STEPS = 16
"""Of a turn."""
IMAGES = 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=("png", "jpeg"), default="png")
    notebook_loops.for_each_framework(__file__, parser, IMAGES, measure)


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    from helpers.training import loader_workers

    def compare(names: dict[str, Any], noise: Take, files: Take) -> None:
        speeds, _ = take_turns(
            {"files": files, "noise": noise}, given.batch_size, given.rounds, STEPS
        )
        figure = f"training on {given.format} files, {framework}"
        inside.report(figure, speeds["files"], speeds["noise"], "on noise")
        run = names["this_run"]
        alone = loader_workers.images_per_second(
            run.training_batches, run.workers, given.batch_size
        )
        print(f"  its loader alone: {alone:,.0f} images/s with {run.workers} workers")

    notebook_loops.with_loops(framework, folder, given.batch_size, compare)


if __name__ == "__main__":
    main()
