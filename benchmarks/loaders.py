"""How fast each notebook's loader delivers batches, with nothing behind it, against others.

    .venvs/lab/bin/python benchmarks/loaders.py [--quick] [--frameworks pytorch,mxnet]
                                                [--of xrays,grey,resized,photos] [--workers 2]
                                                [--images 640]

Ready batches of 224 px; ours is the loader of the framework's notebook as it stands.

`xrays`: the article's loader reads RGB PNGs of 264 px (`benchmarks/article_loaders/`), ours grey
PNGs, grey JPEGs and a packed folder; all of the same generated X-rays.

`grey`: generated X-rays in a folder a class, as grey JPEGs and as grey PNGs of 264 px, against the
framework's documented examples (`benchmarks/documented_loaders/`) of the same files; and against
bare decoding: the notebook's reader, in as many threads as there are workers.

`resized`: generated photos (`benchmarks/photos.py`) as RGB JPEGs in a folder a class, resized to
256 px as the recipe resnet50-imagenet has them, once; against the same.

`photos`: the same of those photos as they were, of ImageNet's 500 x 375 pixels; and what people do
with ImageNet, ours on resized files, compared with the examples on the photos.

Each framework runs in its own environment; there, the loaders take turns, round by round. Figures
are medians, ratios are medians of the rounds' ratios with their interval to 95 % of confidence: by
the clock, and by the processor time of the process and its workers.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import inside
import notebook_loops
import photos
import quick
import turns
from photos import Files
from turns import Batches

from helpers.frameworks import NOTEBOOKS
from helpers.training.image_data import Data

FORMATS = ("png", "jpeg", "packed")
ARTICLE = [name for name in NOTEBOOKS if (inside.HERE / "article_loaders" / f"{name}.py").exists()]
"""The frameworks of the article; one that came later has no loader there to be compared with."""

RECIPE = """[data]
reader = "imagefolder"
image_size = {size}
crop = {crop}
color_mode = "{mode}"
[model]
network = "resnet50"
[train]
task = "multiclass"
batch_size = {batch}
"""
"""What resnet50-imagenet says of loading, for files of any size."""
BATCH = 32
LEAST = {"xrays": 128, "grey": 40, "resized": 40, "photos": 40}
"""Images of which, without those that are kept for validation, there is one batch to train on."""
OURS = "ours"
GREY = [
    Files(f"grey {name.upper()}s", f"grey-{name}", f"grey-{name}/images/train", 264, "grayscale")
    for name in ("jpeg", "png")
]
"""X-rays in a folder a class."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    which = f"which images, of {', '.join(KINDS)} (default: all)"
    parser.add_argument("--of", default=",".join(KINDS), help=which)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each turn")
    inside.add_arguments(parser, frameworks=",".join(ARTICLE))
    # Without the X-rays, of which the article's loader reads some hundred a second.
    given = quick.parse(parser, seconds=0.1, images=max(LEAST.values()), of="resized")
    kinds = given.of.split(",")
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"--of {unknown.pop()}: it is one of {', '.join(KINDS)}")
    if given.images < (least := max(LEAST[kind] for kind in kinds)):
        parser.error(f"--images {given.images}: that does not fill a batch; give {least} or more")

    def make(folder: Path) -> None:
        if "xrays" in kinds:
            make_files(folder, given.images)
        if "grey" in kinds:
            make_grey(folder, given.images)
        if {"resized", "photos"} & set(kinds):
            make_photos(folder, given.images)

    inside.measure_each(__file__, parser, given, f"{given.workers} workers", measure, make)


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    for kind in given.of.split(","):
        KINDS[kind](framework, folder, given)


def make_files(folder: Path, images: int, size: int = 264) -> None:
    """The same X-rays in each form; of the rival's RGB files three equal planes."""
    from PIL import Image

    import data_prep

    source = folder / "source"
    data_prep.generate_nih(source, images=images, progress=False)
    for format in ("png", "jpeg"):
        data_prep.resize_folder(source, folder / format, size=size, format=format, progress=False)
    data_prep.pack_folder(folder / "png", folder / "packed", progress=False)
    (folder / "rgb" / "images").mkdir(parents=True)
    for file in (folder / "png" / "images").glob("*.png"):
        Image.open(file).convert("RGB").save(folder / "rgb" / "images" / file.name)


def make_photos(folder: Path, images: int) -> None:
    """Photos in each size, with a recipe for each, and a line that says what they are."""
    photos.make_photos(folder, images)
    for files in (photos.SMALL, photos.LARGE):
        add_recipe(folder, files)


def make_grey(folder: Path, images: int) -> None:
    """So many X-rays to train on, and two more, in each format; of two classes by turns."""
    import data_prep

    data_prep.generate_nih(folder / "whole", images=images + 2, progress=False)
    for number, path in enumerate(sorted((folder / "whole" / "images").iterdir())):
        part = "val" if number < 2 else "train"
        file = folder / "classes" / part / f"class{number % 2}" / path.name
        file.parent.mkdir(parents=True, exist_ok=True)
        path.rename(file)
    for files in GREY:
        format = files.data.removeprefix("grey-")
        how: dict[str, Any] = {"size": files.shorter, "format": format, "reader": "imagefolder"}
        data_prep.resize_folder(folder / "classes", folder / files.data, progress=False, **how)
        add_recipe(folder, files)


def add_recipe(folder: Path, files: Files) -> None:
    """A recipe next to the files, and a line that says what they are."""
    of = {"size": files.shorter, "mode": files.mode}
    text = RECIPE.format(**of, crop=photos.CROP, batch=BATCH)
    (folder / files.data).with_suffix(".toml").write_text(text)
    found = photos.images_in(folder / files.train)
    mean = sum(path.stat().st_size for path in found) / len(found)
    print(f"{len(found)} {files.name}, {mean / 1000:.0f} kB in the mean")


def of_xrays(framework: str, folder: Path, given: argparse.Namespace) -> None:
    """Against the article's loader."""
    inside.require("article_loaders", framework, "loader in the article")
    rival = importlib.import_module(f"article_loaders.{framework}")
    article = "the article's loader on RGB PNGs"
    loaders = {article: lambda workers: rival.batches(folder / "rgb", workers)}
    for format in FORMATS:
        loaders[format], _ = notebook(framework, folder, folder / format, "chexnet", 64)
    found = turns.take_loaders_turns(loaders, given.workers, 64, given.rounds, given.seconds)
    for format in FORMATS:
        of = f"{framework}, {format}, {given.workers} workers"
        turns.report_turns("loader", of, found, format, article)


def of_photos(files: Files, framework: str, folder: Path, given: argparse.Namespace) -> None:
    """Against the framework's documented examples and bare decoding of the same files."""
    inside.require("documented_loaders", framework, "documented example")
    examples = importlib.import_module(f"documented_loaders.{framework}").EXAMPLES
    train = folder / files.train
    own, images = of_recipe(files, framework, folder)
    loaders: dict[str, Batches] = {OURS: own}
    rows = images.train["row"].tolist()
    loaders[photos.BARE] = partial(photos.decoded, images.read, rows, batch=BATCH)
    for name, example in examples.items():
        loaders[name] = partial(example, train, batch=BATCH, crop=photos.CROP)
    pairs = [(files, OURS, rival) for rival in list(loaders)[1:]]
    if files is photos.LARGE:
        small = f"ours, {photos.SMALL.name}"
        loaders[small], _ = of_recipe(photos.SMALL, framework, folder)
        pairs += [(photos.SMALL, small, name) for name in examples]
    found = turns.take_loaders_turns(loaders, given.workers, BATCH, given.rounds, given.seconds)
    for read, ours, rival in pairs:
        of = f"{framework}, {read.name}, {given.workers} workers"
        name = rival if read is files else f"{rival}, {files.name}"
        turns.report_turns("loader", of, found, ours, rival, name)


def of_grey(framework: str, folder: Path, given: argparse.Namespace) -> None:
    for files in GREY:
        of_photos(files, framework, folder, given)


KINDS: dict[str, Callable[[str, Path, argparse.Namespace], None]] = {
    "xrays": of_xrays,
    "grey": of_grey,
    "resized": partial(of_photos, photos.SMALL),
    "photos": partial(of_photos, photos.LARGE),
}


def of_recipe(files: Files, framework: str, folder: Path) -> tuple[Batches, Data]:
    """A notebook's loader of such files, by the recipe next to them."""
    data = folder / files.data
    return notebook(framework, folder, data, str(data.with_suffix(".toml")), BATCH)


def notebook(
    framework: str, folder: Path, data: Path, recipe: str, batch: int
) -> tuple[Batches, Data]:
    """The training loader of a notebook, for one device, and its images."""
    name = NOTEBOOKS[framework]
    of = {"data": str(data), "recipe": recipe}
    names = notebook_loops.names_of(name, folder, batch, "## 6.", **of)
    return partial(batches, names), names["run"].images


def batches(names: dict[str, Any], workers: int) -> Iterator[Any]:
    """Those of a notebook's training loader, for one device."""
    run = names["run"]
    if "dist" in names and not names["dist"].is_initialized():  # the only process
        dist = names["dist"]
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    run.workers = workers
    yield from chain.from_iterable(repeat(names["make_loader"](run.train_part, True)))


if __name__ == "__main__":
    main()
