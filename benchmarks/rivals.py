"""Compare PyTorch's notebook with the article's loop and with timm's benchmark step.

    .venvs/lab/bin/python benchmarks/rivals.py [--quick] [--recipe chexnet] [--precision bf16]
                                               [--batch-size 64] [--workers CORES] [--trace FILE]

On one device, a GPU where there is one. Ours is the notebook's own loop, on noise and on PNGs
through its own loader; the article's loop runs as written, on noise and on RGB PNGs through its
loader (`benchmarks/pytorch_rivals.py` says what had to change); timm's step runs on noise, in
float32 as timm comes and as fast as its options make it, in our precision with channels last. timm
is no part of the environment: `.venvs/pytorch/bin/pip install timm`. Loads take turns in one
process. Figures are medians, ratios are medians of the rounds' ratios, above 1 where ours is
faster.

The share of the memory's bandwidth: every tensor that an operation of the step reads or writes is
counted once, views not at all, forwards, backwards and in the optimiser; that is divided by what
copying a large tensor attains here. With `--quick` it is all tried on a CPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import inside
import loaders
import notebook_loops
import quick
from notebook_loops import Take
from turns import report, take_turns

from data_prep import FINDINGS
from helpers.frameworks import NOTEBOOKS
from helpers.recipe import MULTILABEL, PRECISIONS, RECIPES, lookup

if TYPE_CHECKING:
    import torch

ARTICLES = [name for name, recipe in RECIPES.items() if recipe.task == MULTILABEL]
"""The rivals train the article's network, on its findings."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipe", default="chexnet", choices=ARTICLES)
    parser.add_argument("--precision", default="fp32", choices=PRECISIONS)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20, help="steps in each turn")
    parser.add_argument("--images", type=int, default=640, help="files to read")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="workers of both loaders"
    )
    parser.add_argument("--trace", default="", help="write three steps of ours for a trace viewer")
    inside.add_arguments(parser, frameworks="pytorch")
    given = quick.parse(parser)
    if given.frameworks != "pytorch":
        parser.error("the rivals are PyTorch's: leave --frameworks out")
    size = lookup(given.recipe).image_size

    def make(folder: Path) -> None:
        loaders.make_files(folder, given.images, size)

    inside.measure_each(__file__, parser, given, f"{size} px", measure, make)


def measure(framework: str, folder: Path, given: argparse.Namespace) -> None:
    notebook_loops.with_loops(
        NOTEBOOKS[framework],
        folder,
        given.batch_size,
        partial(compare, folder, given),
        data=str(folder / "png"),
        recipe=given.recipe,
        precision=given.precision,
        num_workers=str(given.workers),
    )


def compare(
    folder: Path, given: argparse.Namespace, names: dict[str, Any], noise: Take, files: Take
) -> None:
    import torch
    from article_loaders import pytorch as article_loader
    from pytorch_rivals import article, timm_step

    (device,), crop = names["run"].devices, names["r"].crop
    grey = torch.randint(
        0, 256, (given.batch_size, crop, crop, 1), dtype=torch.uint8, device=device
    )
    targets = torch.zeros(given.batch_size, len(FINDINGS), device=device)
    images = names["to_network"](grey)
    rgb = article_loader.batches(
        folder / "rgb", given.workers, given.batch_size, crop, pinned=device.type == "cuda"
    )
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
    print(f"{given.batch_size} images of {crop} px, {given.steps} steps a turn", flush=True)
    speeds, _ = take_turns(loads, given.batch_size, given.rounds, given.steps)
    for ours, rival in pairs:
        report(ours, "images/s", speeds[ours], speeds[rival], rival)

    moved, attained = bytes_of(lambda: noise(1)), copying(device)
    step = given.batch_size / statistics.median(speeds["ours"])
    print(
        f"  memory: {moved / 1e9:.1f} GB a step of {1000 * step:.1f} ms, at least"
        f" {1000 * moved / attained:.1f} ms at the {attained / 1e9:,.0f} GB/s that copying attains:"
        f" {moved / attained / step:.0%} of the bandwidth"
    )
    if given.trace:
        trace(noise, Path(given.trace))


def bytes_of(step: Any) -> int:
    """Bytes that the operations of a step read and write."""
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    def size(values: Any) -> int:
        return sum(leaf.nbytes for leaf in tree_leaves(values) if isinstance(leaf, Tensor))

    class Traffic(TorchDispatchMode):
        total = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            result = func(*args, **kwargs)
            if not (func.is_view or func.__name__.startswith(("empty", "new_empty"))):
                schema = func._schema
                given = dict(zip((one.name for one in schema.arguments), args, strict=False))
                for one in schema.arguments:
                    written = one.alias_info is not None and one.alias_info.is_write
                    self.total += size((given | kwargs).get(one.name)) * (2 if written else 1)
                if not any(one.alias_info for one in schema.returns):
                    self.total += size(result)
            return result

    with Traffic() as traffic:
        step()
    return traffic.total


def copying(device: torch.device) -> float:
    """Bytes/s, read and written, of copying a tensor far larger than any cache."""
    import torch

    source = torch.ones(256 << 20, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copies(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            target.copy_(source)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.perf_counter() - began) / count

    copies(2)
    return 2 * source.nbytes / copies(max(5, int(0.5 / copies(2))))


def trace(noise: Take, file: Path) -> None:
    """Three steps as a trace, and the ten operations that take longest."""
    from torch.profiler import profile

    with profile() as found:
        noise(3)
    written = file.with_name(f".{file.name}.part")
    found.export_chrome_trace(str(written))
    written.replace(file)
    averages = found.key_averages()
    on_device = any(row.self_device_time_total for row in averages)
    print(averages.table("self_device_time_total" if on_device else "self_cpu_time_total", 10))
    print(f"  trace: {file}")


if __name__ == "__main__":
    main()
