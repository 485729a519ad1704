"""What our training loop costs beside a bare one of the same framework: it should cost nothing.

    .venvs/lab/bin/python benchmarks/step.py [--quick] [--frameworks pytorch,mxnet] [--batch 16]

Ours is the notebook's own `train_epoch` as it stands, with all that is in it (the machinery of
replicas, losses kept on the device, the clock that says where the time goes, normalising of grey
planes), on one device and one synthetic batch of 64 px. The rival is a step written by hand
(`benchmarks/bare_loops/`) on images that are normalised already. They take turns in one process,
16 steps each: what is done once an epoch (the loss is read, replicas share BatchNorm's statistics)
is no part of a step, and weighs little beside 16. Figures are medians, ratios are medians of the
rounds' ratios, above 1 where ours is faster.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inside
from compute import take_turns

from helpers.frameworks import NOTEBOOKS

STEPS = 16
"""Of a turn."""
FILES = 75
"""Pixels of image files of which the recipe's crop is 64."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 rounds instead of 11")
    parser.add_argument("--batch", type=int, default=16)
    inside.add_arguments(parser)
    given = parser.parse_args()
    names = inside.chosen(parser, given)
    if given.inside:
        measure(names[0], given.batch, 3 if given.quick else 11)
        return
    for name in names:
        print(f"{name}, {given.batch} images of 64 px", flush=True)
        inside.run(__file__, name)


def measure(framework: str, batch: int, rounds: int) -> None:
    from data_prep import make_demo, resize_folder
    from helpers.cells import run_cells

    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        make_demo(Path(folder) / "large", images=60, size=128, progress=False)
        data = Path(folder) / "data"
        resize_folder(Path(folder) / "large", data, size=FILES, progress=False)
        names = run_cells(
            NOTEBOOKS[framework],
            until="monitor.start()",
            wanted=lambda text: "certify(" not in text,
            data=str(data),
            run=folder,
            recipe="demo",
            devices=1,
            batch=batch,
        )
    assert names["scaled"].recipe.crop == 64
    OURS[framework](names, batch, rounds)


def compare(
    framework: str, ours: Callable[[int], Any], batch: int, rounds: int, **options: object
) -> None:
    bare = importlib.import_module(f"bare_loops.{framework}").make(64, batch, **options)
    loads = {"ours": ours, "bare": bare}
    for take in loads.values():
        take(2)
    speeds = take_turns(loads, batch, rounds, STEPS)
    inside.report(f"step, {framework}", speeds["ours"], speeds["bare"], "a bare loop")


def _pytorch(names: dict[str, Any], batch: int, rounds: int) -> None:
    from helpers import replicas

    def replica(rank: int) -> None:
        device = names["replica_devices"][0]
        model = names["start_replica"](rank, names["build_model"](names["initial"].arrays))
        optimizer, scaler = names["make_optimizer"](model), names["make_scaler"](device)
        synthetic = names["make_synthetic_batch"](batch, device)

        def ours(steps: int) -> None:
            names["train_epoch"](model, [synthetic] * steps, optimizer, scaler, device)

        compare("pytorch", ours, batch, rounds)

    replicas.run(replica, 1)


def _mxnet(names: dict[str, Any], batch: int, rounds: int) -> None:
    model, parts = names["model"], names["make_synthetic_parts"](batch)
    optimizer = names["make_optimizer"](model)
    compare("mxnet", lambda n: names["train_epoch"](model, [parts] * n, optimizer), batch, rounds)


def _tensorflow(names: dict[str, Any], batch: int, rounds: int) -> None:
    model, synthetic = names["model"], names["make_synthetic_batch"](batch)
    optimizer = names["make_optimizer"](model)

    def ours(steps: int) -> None:
        names["train_epoch"](model, [synthetic] * steps, optimizer)

    # Grappler as in the notebook, for it is the process's and not a loop's.
    grappler = names["setup"].devices.kind == "gpu"
    compare("tensorflow", ours, batch, rounds, grappler=grappler)


def _keras(names: dict[str, Any], batch: int, rounds: int) -> None:
    learner, noise = names["learner"], names["SyntheticXRays"](batch)
    compare("keras", lambda n: names["train_epoch"](learner, noise, n), batch, rounds)


def _chainer(names: dict[str, Any], batch: int, rounds: int) -> None:
    copies = names["make_replicas"](names["initial"].arrays)
    loaders, converter = names["make_synthetic_loaders"](), names["OnDevice"](batch)
    updater = names["make_updater"](copies, loaders, converter)
    compare("chainer", lambda n: names["train_epoch"](updater, copies, n), batch, rounds)


OURS: dict[str, Callable[[dict[str, Any], int, int], None]] = {
    "pytorch": _pytorch,
    "keras": _keras,
    "tensorflow": _tensorflow,
    "mxnet": _mxnet,
    "chainer": _chainer,
}


if __name__ == "__main__":
    main()
