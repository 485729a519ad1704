"""Compare how fast each notebook's loader delivers batches with other loaders, without training.

    .venvs/lab/bin/python benchmarks/loaders.py [--quick] [--frameworks pytorch,mxnet]
                                                [--of resized,photos,grey-jpeg,grey-png]
                                                [--workers 2] [--images 640]

Ours is the loader of the framework's notebook as it stands. It reads generated images in a folder a
class and gives crops of 224 px: `resized` are RGB JPEGs of 256 px, as the recipe resnet50-imagenet
has them, `photos` of 375 px, as ImageNet has them; `grey` ones have 264 px, as the recipe chexnet
has them. The rivals read the same files (`benchmarks/stock_loaders/`): what the framework documents
for ImageNet; of grey images its stock loader with its own crops and flips, too. A third is bare
decoding: our reader, in as many threads as there are workers.

Each framework runs in its own environment, and its loaders in interleaved rounds. Results are
medians; ratios are medians of the rounds' ratios with their 95 % interval, for wall-clock time and
for the processor time of the process and its workers.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, cycle, islice, repeat
from pathlib import Path
from typing import Any

import common
import interleaved
import notebook_loops

from data_prep import resize_folder
from data_prep.synthetic_shapes import generate_imagefolder
from helpers.frameworks import NOTEBOOKS

KINDS = {"resized": 256, "photos": 375, "grey-jpeg": 264, "grey-png": 264}
"""Pixels of the images' shorter sides."""
BATCH, CROP, LEAST = 32, 224, 60
RECIPE = """[data]
reader = "imagefolder"
image_size = {size}
crop = 224
color_mode = "{mode}"
[model]
network = "resnet50"
[train]
task = "multiclass"
batch_size = 32
"""
"""What resnet50-imagenet says of loading, for files of any size."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--of", default=",".join(KINDS), help="which images (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each measurement")
    common.add_arguments(parser)
    given = common.parse(parser, seconds=0.1, of="resized")
    kinds = given.of.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"--of {unknown.pop()}: it is one of {', '.join(KINDS)}")
    if given.images < LEAST:
        parser.error(f"--images {given.images}: that does not fill a batch; give {LEAST} or more")

    def make(folder: Path) -> None:
        for kind in kinds:
            make_images(folder / kind, kind, given.images)

    common.measure_each(__file__, parser, given, measure, make)


def make_images(folder: Path, kind: str, images: int) -> None:
    """Images in a folder a class, and a recipe next to them."""
    grey = kind.startswith("grey")
    of: dict[str, Any] = {"size": KINDS[kind], "progress": False}
    source = folder.with_name(f"{kind}-source") if grey else folder
    generate_imagefolder(source, images=images, **of)
    if grey:
        how: dict[str, Any] = {
            "format": kind.removeprefix("grey-"),
            "reader": "imagefolder",
            "channels": 1,
        }
        resize_folder(source, folder, **how, **of)
    text = RECIPE.format(size=KINDS[kind], mode="grayscale" if grey else "rgb")
    folder.with_suffix(".toml").write_text(text)


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    rivals = common.module("stock_loaders", framework)
    for kind in given.of.split(","):
        data = folder / kind
        of = {"data": str(data), "recipe": str(data.with_suffix(".toml")), "batch_size": BATCH}
        names = notebook_loops.names_of(NOTEBOOKS[framework], folder, "## 6.", **of)
        images = names["run"].images
        loaders: dict[str, interleaved.Batches] = {"ours": partial(batches, names)}
        loaders["bare decoding"] = partial(decoded, images.read, images.train["row"].tolist())
        examples = rivals.EXAMPLES | (rivals.OWN if kind.startswith("grey") else {})
        train = next(data.rglob("train"))
        loaders |= {name: partial(rival, train, batch=BATCH, crop=CROP)
                    for name, rival in examples.items()}  # fmt: skip
        found = interleaved.measure_loaders(
            loaders, given.workers, BATCH, given.rounds, given.seconds
        )
        for rival in list(loaders)[1:]:
            what = f"loader, {framework}, {kind}, {given.workers} workers"
            interleaved.report_loads(what, found, "ours", rival)


def batches(names: dict[str, Any], workers: int) -> Iterator[Any]:
    """Those of a notebook's training loader, for one device."""
    run = names["run"]
    if "dist" in names and not names["dist"].is_initialized():  # the only process
        dist = names["dist"]
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    run.workers = workers
    yield from chain.from_iterable(repeat(names["make_loader"](run.train_split, True)))


def decoded(read: Callable[[Any], Any], rows: Sequence[Any], workers: int) -> Iterator[int]:
    """``read`` of one image after another, without end, in as many threads; pixels are dropped.

    Our readers give Python's lock back while they decode. Each item is a batch's number of images.
    """
    order = cycle(rows)

    def decode(some: list[Any]) -> int:
        for row in some:
            read(row)
        return len(some)

    with ThreadPoolExecutor(workers) as pool:
        coming = [pool.submit(decode, list(islice(order, BATCH))) for _ in range(2 * workers)]
        try:
            while True:
                yield coming.pop(0).result()
                coming.append(pool.submit(decode, list(islice(order, BATCH))))
        finally:
            pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()
