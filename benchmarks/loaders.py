"""How fast each notebook's loader delivers batches, against the article's loader of that framework.

    .venvs/lab/bin/python benchmarks/loaders.py [--quick] [--frameworks pytorch,mxnet]
                                                [--workers 2] [--images 640]

Ready 224 px batches of 64 from files of 264 px, with nothing behind the loader. The rival reads RGB
PNGs (`benchmarks/article_loaders/`, with what had to change); ours is section 5 of the framework's
notebook as it stands, from grey PNGs, grey JPEGs and a packed folder. The files are the same
generated X-rays. Each framework runs in its own environment; there, the four loaders take turns,
round by round. Figures are medians, ratios are medians of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import inside
import quick

from helpers.frameworks import NOTEBOOKS

BATCH = 64
FORMATS = ("png", "jpeg", "packed")
ARTICLE = [name for name in NOTEBOOKS if (inside.HERE / "article_loaders" / f"{name}.py").exists()]
"""The frameworks of the article; one that came later has no loader there to be compared with."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--seconds", type=float, default=2.0, help="of a turn")
    inside.add_arguments(parser, frameworks=",".join(ARTICLE))
    given = quick.parse(parser, seconds=0.3, images=2 * BATCH)
    names = inside.chosen(parser, given)
    if given.inside:
        measure(names[0], Path(given.inside), given.workers, given.rounds, given.seconds)
        return
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), given.images)
        done = inside.run_each(__file__, names, f"{given.workers} workers", folder)
    sys.exit(not done)


def make_files(folder: Path, images: int, size: int = 264) -> None:
    """The same X-rays in each form; of the rival's RGB files three equal planes."""
    from PIL import Image

    import data_prep

    source = folder / "source"
    data_prep.make_demo(source, images=images, progress=False)
    for format in ("png", "jpeg"):
        data_prep.resize_folder(source, folder / format, size=size, format=format, progress=False)
    data_prep.pack_folder(folder / "png", folder / "packed", progress=False)
    (folder / "rgb" / "images").mkdir(parents=True)
    for file in (folder / "png" / "images").glob("*.png"):
        Image.open(file).convert("RGB").save(folder / "rgb" / "images" / file.name)


def measure(framework: str, folder: Path, workers: int, rounds: int, seconds: float) -> None:
    inside.require("article_loaders", framework, "loader in the article")
    from helpers.runner.notebook_code import run_cells
    from helpers.training import loader_workers

    rival = importlib.import_module(f"article_loaders.{framework}")
    loaders: dict[str, Any] = {"article": lambda count: rival.batches(folder / "rgb", count)}
    for format in FORMATS:
        with contextlib.redirect_stdout(io.StringIO()):
            names = run_cells(
                NOTEBOOKS[framework],
                until="## 6.",
                data=str(folder / format),
                run=str(folder / "run"),
                recipe="chexnet",
                devices=1,
                workers=workers,
            )
        loaders[format] = partial(batches, names)
    speeds: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(rounds):
        for name, load in loaders.items():
            speeds[name].append(
                loader_workers.images_per_second(load, workers, BATCH, seconds=seconds)
            )
    for format in FORMATS:
        figure = f"loader, {framework}, {format}, {workers} workers"
        inside.report(figure, speeds[format], speeds["article"], "the article's loader on RGB PNGs")


def batches(names: dict[str, Any], workers: int) -> Iterator[Any]:
    """A notebook's training batches, for one device."""
    from helpers.training.world import World

    run = names["this_run"]
    world = World(0, 1, run.devices, run.setup.devices.kind)
    yield from names["make_train_loader"](world, 0, workers)


if __name__ == "__main__":
    main()
