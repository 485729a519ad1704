"""Each notebook's own training loop, made ready to take steps on noise or on files.

Cell by cell as the notebook has it, without its fairness check: so that a benchmark measures what
people run, with all that is in it.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any, TypeAlias

import inside
import quick

from helpers.recipe import RECIPES

Take: TypeAlias = Callable[[int], Any]
"""Takes that many training steps, and returns when they are done."""


def for_each_framework(
    script: str,
    parser: argparse.ArgumentParser,
    images: int,
    measure: Callable[[str, Path, argparse.Namespace], None],
) -> None:
    """A benchmark's main: call ``measure(framework, folder, arguments)`` for each.

    Each in its framework's own environment. The folder holds the files for :func:`with_loops`,
    so many images; ``parser`` has the benchmark's other options.
    """
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--pixels", type=int, default=64, help="side of the network's input")
    parser.add_argument("--images", type=int, default=images, help="files to read")
    inside.add_arguments(parser)
    given = quick.parse(parser)
    if given.pixels > (most := RECIPES["chexnet"].crop):
        parser.error(f"--pixels {given.pixels}: give {most} or less")
    what = f"{given.batch_size} images of {given.pixels} px"

    def make(folder: Path) -> None:
        _make_files(folder, given.images, given.pixels)

    inside.measure_each(script, parser, given, what, measure, make)


def file_pixels(pixels: int) -> int:
    """Pixels of image files of which the recipe crops ``pixels``."""
    recipe = RECIPES["chexnet"]
    return round(pixels * recipe.image_size / recipe.crop)


def _make_files(folder: Path, images: int, pixels: int) -> None:
    """Generated X-rays, small, ready to train."""
    from data_prep import generate_nih, resize_folder

    with redirect_stdout(io.StringIO()):
        generate_nih(folder / "large", images=images, size=2 * pixels, progress=False)
        size = file_pixels(pixels)
        resize_folder(folder / "large", folder / "data", size=size, progress=False)


def names_of(notebook: str, folder: Path, batch: int, until: str, **given: Any) -> dict[str, Any]:
    """The notebook's names where it comes to ``until``, on one device.

    ``given`` are more of the notebook's parameters, in place of the files that
    :func:`for_each_framework` makes and of their recipe.
    """
    from helpers.runner.notebook_code import run_cells

    with redirect_stdout(io.StringIO()):
        how = _parameters(folder, batch) | given
        return run_cells(notebook, until=until, checked=False, **how)


def _parameters(folder: Path, batch: int) -> dict[str, Any]:
    said: dict[str, Any] = {"data": str(folder / "data"), "recipe": "demo", "devices": 1}
    return said | {"run": str(folder / "run"), "batch_size": batch}


def with_loops(
    notebook: str,
    folder: Path,
    batch: int,
    use: Callable[[dict[str, Any], Take, Take], None],
    **given: Any,
) -> None:
    """Call ``use`` with the notebook's names and its loop on synthetic data and on files.

    It runs in place of the notebook's measurements, without what comes before them: in each process
    that would train. ``given`` are as in :func:`names_of`.
    """
    from helpers.runner.notebook_code import run_cells

    def only_measure(run: Any) -> None:
        def measure(synthetic: Take, files: Take, **others: Take) -> None:
            use(names, synthetic, files)

        names = run.names
        run.epochs = run.test = lambda *given: ()
        run.phase = lambda name: nullcontext()
        run.measure = measure

    run_cells(
        notebook,
        until="run.chart()",
        checked=False,
        changed=lambda text: text.replace("print(run)", "only_measure(run)"),
        only_measure=only_measure,
        **_parameters(folder, batch) | given,
    )
