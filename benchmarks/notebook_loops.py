"""Each notebook's own training loop, made ready to take steps on noise or on files.

Section by section as the notebook has it, on one device, without its certificate: so that a
benchmark measures what people run, with all that is in it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import inside

from helpers.frameworks import NOTEBOOKS

Take: TypeAlias = Callable[[int], Any]
"""Takes that many training steps, and returns when they are done."""

PIXELS = 64
FILES = 75
"""Pixels of image files of which the recipe's crop is 64."""


def for_each_framework(
    script: str,
    parser: argparse.ArgumentParser,
    images: int,
    measure: Callable[[str, Path, argparse.Namespace], None],
    frameworks: str = ",".join(NOTEBOOKS),
) -> None:
    """A benchmark's main: call ``measure(framework, folder, arguments)`` for each.

    Each in its framework's own environment. The folder holds the files for :func:`with_loops`,
    so many images; ``parser`` has what the benchmark asks for besides.
    """
    parser.add_argument("--batch", type=int, default=16)
    inside.add_rounds(parser)
    inside.add_arguments(parser)
    parser.set_defaults(frameworks=frameworks)
    given = parser.parse_args()
    names = inside.chosen(parser, given)
    if given.inside:
        measure(names[0], Path(given.inside), given)
        return
    with tempfile.TemporaryDirectory() as folder:
        _make_files(Path(folder), images, getattr(given, "format", "png"))
        done = inside.run_each(script, names, f"{given.batch} images of {PIXELS} px", folder)
    sys.exit(not done)


def _make_files(folder: Path, images: int, format: str) -> None:
    """Generated X-rays, small, ready to train."""
    from data_prep import make_demo, resize_folder

    with contextlib.redirect_stdout(io.StringIO()):
        make_demo(folder / "large", images=images, size=2 * PIXELS, progress=False)
        resize_folder(folder / "large", folder / "data", size=FILES, format=format, progress=False)


def with_loops(
    framework: str,
    folder: Path,
    batch: int,
    use: Callable[[dict[str, Any], Take, Take], None],
    **given: str,
) -> None:
    """Call ``use`` with the notebook's names and its loop on synthetic data and on files.

    Both are made, as in a run: a loader that exists can change what a step costs. Where replicas
    are processes of their own, ``use`` runs in one. ``given`` are more of the notebook's
    parameters, in place of the files that :func:`for_each_framework` makes and of their recipe.
    """
    from helpers.cells import run_cells

    with contextlib.redirect_stdout(io.StringIO()):
        names = run_cells(
            NOTEBOOKS[framework],
            until="monitor.start()",
            wanted=lambda text: "certify(" not in text,
            run=str(folder / "run"),
            devices=1,
            batch=batch,
            **({"data": str(folder / "data"), "recipe": "demo"} | given),
        )
    assert given or names["scaled"].recipe.crop == PIXELS
    _LOOPS[framework](names, batch, use)


def _pytorch(names: dict[str, Any], batch: int, use: Callable[..., None]) -> None:
    from helpers import replicas

    def replica(rank: int) -> None:
        device = names["replica_devices"][0]
        model = names["start_replica"](rank, names["build_model"](names["initial"].arrays))
        rest = names["make_optimizer"](model), names["make_scaler"](device), device
        noise = names["make_synthetic_batch"](batch, device)
        files = iter(names["make_train_loader"](rank, names["workers"]))
        train_epoch = names["train_epoch"]
        use(
            names,
            lambda steps: train_epoch(model, [noise] * steps, *rest),
            lambda steps: train_epoch(model, islice(files, steps), *rest),
        )

    replicas.run(replica, 1)


def _keras(names: dict[str, Any], batch: int, use: Callable[..., None]) -> None:
    learner, train_epoch = names["learner"], names["train_epoch"]
    noise, files = names["SyntheticXRays"](batch), names["make_train_loader"]()
    use(
        names,
        lambda steps: train_epoch(learner, noise, steps),
        lambda steps: train_epoch(learner, files, steps),
    )


def _tensorflow(names: dict[str, Any], batch: int, use: Callable[..., None]) -> None:
    model, train_epoch = names["model"], names["train_epoch"]
    optimizer = names["make_optimizer"](model)
    noise, files = names["make_synthetic_batch"](batch), iter(names["make_train_loader"]())
    use(
        names,
        lambda steps: train_epoch(model, [noise] * steps, optimizer),
        lambda steps: train_epoch(model, islice(files, steps), optimizer),
    )


def _mxnet(names: dict[str, Any], batch: int, use: Callable[..., None]) -> None:
    model, train_epoch = names["model"], names["train_epoch"]
    optimizer = names["make_optimizer"](model)
    noise = names["make_synthetic_parts"](batch)
    files = names["on_devices"](names["make_train_loader"](names["workers"]))
    use(
        names,
        lambda steps: train_epoch(model, [noise] * steps, optimizer),
        lambda steps: train_epoch(model, islice(files, steps), optimizer),
    )


def _chainer(names: dict[str, Any], batch: int, use: Callable[..., None]) -> None:
    def updater(loaders: list[Any], *converter: Any) -> Take:
        copies = names["make_replicas"](names["initial"].arrays)
        trained = names["make_updater"](copies, loaders, *converter)
        return lambda steps: names["train_epoch"](trained, copies, steps)

    loaders = names["make_train_loaders"]()
    noise = updater(names["make_synthetic_loaders"](), names["OnDevice"](batch))
    use(names, noise, updater(loaders))
    for loader in loaders:
        loader.finalize()


_LOOPS: dict[str, Callable[[dict[str, Any], int, Callable[..., None]], None]] = {
    "pytorch": _pytorch,
    "keras": _keras,
    "tensorflow": _tensorflow,
    "mxnet": _mxnet,
    "chainer": _chainer,
}
