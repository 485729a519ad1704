"""Compare the notebooks' training loop with a plain one of the same framework.

    .venvs/lab/bin/python benchmarks/step.py [--quick] [--frameworks pytorch,mxnet]
                                             [--batch-size 16] [--steps 48] [--rounds 7]
                                             [--notebook NAME] [--devices 2]

Ours is the notebook's own loop as it stands, with all that is in it, on one synthetic batch. The
rival is a step written by hand (`benchmarks/bare_loops/`) on images that are normalised already; a
process with several devices compares with a step for each. Both are interleaved in one process.
Results are medians; ratios are medians of the rounds' ratios with their 95 % interval, above 1 if
ours is faster. They are given for wall-clock time, and for processor time, which other programs on
the same cores hardly change.
"""

from __future__ import annotations

import argparse
import io
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import common
import notebook_loops
from interleaved import measure_loads, report_loads
from notebook_loops import Take

from helpers.frameworks import NOTEBOOKS
from helpers.recipe import RECIPES
from helpers.recipe.settings import LEAST_CROP

IMAGES, SIZE, CROP = 60, RECIPES["chexnet"].image_size, RECIPES["chexnet"].crop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--pixels", type=int, default=64, help="side of the network's input")
    parser.add_argument("--steps", type=int, default=48, help="steps of each measurement")
    parser.add_argument("--notebook", default="", help="another one of the framework")
    parser.add_argument("--devices", type=int, default=1)
    common.add_arguments(parser)
    given = common.parse(parser)
    if not (least := LEAST_CROP["densenet121"]) <= given.pixels <= CROP:
        parser.error(f"--pixels {given.pixels}: give {least} to {CROP}")
    common.measure_each(__file__, parser, given, measure, partial(make, given.pixels))


def make(pixels: int, folder: Path) -> None:
    """Generated X-rays of which the recipe crops ``pixels``."""
    from data_prep import generate_nih, resize_folder

    with redirect_stdout(io.StringIO()):
        generate_nih(folder / "large", images=IMAGES, size=2 * pixels, progress=False)
        size = round(pixels * SIZE / CROP)
        resize_folder(folder / "large", folder / "data", size=size, progress=False)


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    loops = common.module("bare_loops", framework)

    def compare(names: dict[str, Any], noise: Take, files: Take) -> None:
        run = names["run"]
        own = len(run.own_devices)
        bare = loops.make(given.pixels, given.batch_size)
        loads = {"ours": noise, "bare": lambda steps: bare(own * steps)}
        speeds = measure_loads(loads, own * given.batch_size, given.rounds, given.steps)
        if run.rank == 0:
            report_loads(f"step, {notebook}", speeds, "ours", "bare", "a bare loop")

    notebook = given.notebook or NOTEBOOKS[framework]
    choices = {"devices": given.devices, "batch_size": given.batch_size}
    notebook_loops.with_loops(notebook, folder, compare, **choices)


if __name__ == "__main__":
    main()
