"""Compare PyTorch's notebook with the article's loop and with timm's benchmark step.

    .venvs/lab/bin/python benchmarks/rivals.py [--quick] [--recipe chexnet] [--precision bf16]
                                               [--batch-size 64] [--workers CORES]

On one device, a GPU where there is one. Ours is the notebook's own loop, on noise and on PNGs
through its own loader; the article's loop runs as written, on noise and on RGB PNGs through its
loader (`benchmarks/pytorch_rivals.py` says what had to change); timm's step runs on noise, in
float32 as timm comes and as fast as its options make it, in our precision with channels last. timm
is not in the environment: `.venvs/pytorch/bin/pip install timm`. Loads are interleaved in one
process. Results are medians, ratios are medians of the rounds' ratios, above 1 if ours is faster.
`--quick` tries everything on a CPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from functools import partial
from pathlib import Path
from typing import Any

import common
import notebook_loops
from interleaved import measure_loads, report
from notebook_loops import Take
from PIL import Image

import data_prep
from data_prep import FINDINGS
from helpers.frameworks import NOTEBOOKS
from helpers.recipe import RECIPES, lookup
from helpers.recipe.settings import MULTILABEL, PRECISIONS

ARTICLES = [name for name, recipe in RECIPES.items() if recipe.task == MULTILABEL]
"""The rivals train the article's network, on its findings."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="chexnet", choices=ARTICLES)
    parser.add_argument("--precision", default="fp32", choices=PRECISIONS)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20, help="steps of each measurement")
    parser.add_argument("--images", type=int, default=640, help="files to read")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="workers of both loaders"
    )
    common.add_arguments(parser, frameworks="pytorch")
    given = common.parse(parser)
    if given.frameworks != "pytorch":
        parser.error("the rivals are PyTorch's: leave --frameworks out")
    size = lookup(given.recipe).image_size

    common.measure_each(__file__, parser, given, measure, partial(make, given.images, size))


def make(images: int, size: int, folder: Path) -> None:
    """Generated X-rays as grey PNGs for us, and of three equal planes for the article's loader."""
    data_prep.generate_nih(folder / "source", images=images, progress=False)
    data_prep.resize_folder(folder / "source", folder / "png", size=size, progress=False)
    (folder / "rgb" / "images").mkdir(parents=True)
    for file in (folder / "png" / "images").glob("*.png"):
        Image.open(file).convert("RGB").save(folder / "rgb" / "images" / file.name)


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    notebook_loops.with_loops(
        NOTEBOOKS[framework],
        folder,
        partial(compare, folder, given),
        batch_size=given.batch_size,
        data=str(folder / "png"),
        recipe=given.recipe,
        precision=given.precision,
        num_workers=str(given.workers),
    )


def compare(
    folder: Path, given: argparse.Namespace, names: dict[str, Any], noise: Take, files: Take
) -> None:
    import torch
    from pytorch_rivals import article, timm_step
    from stock_loaders.pytorch import image_folder

    (device,), crop = names["run"].devices, names["r"].crop
    grey = torch.randint(
        0, 256, (given.batch_size, crop, crop, 1), dtype=torch.uint8, device=device
    )
    targets = torch.zeros(given.batch_size, len(FINDINGS), device=device)
    images = names["to_network"](grey)
    # The article's loader is torchvision's ImageFolder example, but for the labels.
    pinned = device.type == "cuda"
    files_of = image_folder(folder / "rgb", given.workers, given.batch_size, crop, pinned)
    rgb = ((found, torch.zeros(len(found), len(FINDINGS))) for found, _ in files_of)
    on_noise, on_files = article(device, (images, targets), rgb)
    loads: dict[str, Take] = {"ours": noise, "ours on files": files}
    loads |= {"the article's loop": on_noise, "the article's loop on files": on_files}
    pairs = [("ours", "the article's loop"), ("ours on files", "the article's loop on files")]
    pairs += [("ours on files", "ours")]
    if importlib.util.find_spec("timm"):
        fastest = f"timm's step, {given.precision}, channels last"
        loads["timm's step as it comes"] = timm_step(device, images, None, channels_last=False)
        loads[fastest] = timm_step(device, images, names["cast"], channels_last=True)
        pairs += [("ours", "timm's step as it comes"), ("ours", fastest)]
    else:
        print("  without timm, which is not here: .venvs/pytorch/bin/pip install timm")

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "one CPU device"
    print(f"{name}, PyTorch {torch.__version__}, {given.precision}, {given.workers} workers,")
    print(f"{given.batch_size} images of {crop} px, {given.steps} steps each", flush=True)
    speeds, _ = measure_loads(loads, given.batch_size, given.rounds, given.steps)
    for ours, rival in pairs:
        report(ours, "images/s", speeds[ours], speeds[rival], rival)


if __name__ == "__main__":
    main()
