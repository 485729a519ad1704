"""How fast each framework trains with its own crops and flips, and with the rule of the notebooks.

    .venvs/lab/bin/python benchmarks/transforms.py [--quick] [--frameworks pytorch,mxnet]
                                                   [--workers 2] [--images 320]

Generated X-rays, PNGs of 264 px, and crops of 224 px, by the framework's stock loader
(`benchmarks/own_transforms/`). The network is one convolution, so that loading takes nearly all of
the time. `ours` is the rule of the notebooks: NumPy crops and flips image i of an epoch by
`default_rng([seed, epoch, i])`. JAX and Grain have no crops and flips of their own.

Each framework runs in its own environment; there, both take turns, round by round. Figures are
medians, the ratio is the median of the rounds' ratios with its interval to 95 % of confidence.
"""

from __future__ import annotations

import argparse
import importlib
from functools import partial
from pathlib import Path
from typing import Any

import inside
import quick
import turns
from own_transforms import BATCH, Images

from helpers.frameworks import NOTEBOOKS

NAMES = [name for name in NOTEBOOKS if (inside.HERE / "own_transforms" / f"{name}.py").exists()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=320)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of each turn")
    inside.add_arguments(parser, frameworks=",".join(NAMES))
    given = quick.parse(parser, seconds=0.1)
    what = f"{given.workers} workers"
    inside.measure_each(__file__, parser, given, what, measure, partial(make, given))


def make(given: argparse.Namespace, folder: Path) -> None:
    import data_prep

    data_prep.generate_nih(folder / "source", images=given.images, progress=False)
    data_prep.resize_folder(folder / "source", folder / "png", size=264, progress=False)


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    inside.require("own_transforms", framework, "crops and flips of its own")
    module: Any = importlib.import_module(f"own_transforms.{framework}")
    images = Images(folder / "png" / "images")
    how = {name: partial(module.train, images, own=own) for name, own in WAYS.items()}
    found = turns.take_loaders_turns(how, given.workers, BATCH, given.rounds, given.seconds)
    turns.report_turns(framework, module.OWN, found, "ours", "own")


WAYS = {"ours": False, "own": True}

if __name__ == "__main__":
    main()
