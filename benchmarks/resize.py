"""Compare the speed of resizing with Karmanov's way and with four libraries at their best.

    python benchmarks/resize.py [--quick] [--images N] [--workers N]

Contestants are interleaved, so that a busy machine slows all alike, and ratios are medians of the
ratios within a round. Processor time is given beside wall-clock time, because it hardly depends on
other processes. Every contestant reads the same files from memory-warm storage and
writes grey (the article: RGB) squares of 264 px. A rival whose package is missing is left out and
named. Two sets of files: as the demo writes them (the cheapest row filter), and the same pictures
as most software writes PNGs (adaptive filters, level 6), which is the harder one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import common
import PIL
from interleaved import interleave, report
from interleaved import seconds as seconds_of
from PIL import Image

import data_prep
from data_prep.files import core_count
from data_prep.png import encode_png
from data_prep.synthetic_nih import generate_xray

SIZE = 264

Contestant = Callable[[Path, Path], None]


def article(file: Path, to: Path) -> None:
    """The article's way: Pillow, bilinear, three equal planes, PNG."""
    with Image.open(file) as image:
        small = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        small.convert("RGB").save(to.with_suffix(".png"))


def pillow(file: Path, to: Path, *, format: str) -> None:
    """Pillow (or pillow-simd, where that is installed) at its best: grey, level 1."""
    with Image.open(file) as image:
        small = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        if format == "png":
            small.save(to.with_suffix(".png"), compress_level=1)
        else:
            small.save(to.with_suffix(".jpg"), quality=90)


def rivals(format: str) -> Iterator[tuple[str, Contestant]]:
    """Name and function of each library that can be imported."""
    yield "pillow-simd" if "post" in PIL.__version__ else "Pillow", partial(pillow, format=format)
    ending = ".png" if format == "png" else ".jpg"
    with contextlib.suppress(ImportError):
        import cv2

        cv2.setNumThreads(1)
        how = (
            [cv2.IMWRITE_PNG_COMPRESSION, 1] if format == "png" else [cv2.IMWRITE_JPEG_QUALITY, 90]
        )

        def opencv(file: Path, to: Path) -> None:
            image = cv2.imread(str(file), cv2.IMREAD_GRAYSCALE)
            small = cv2.resize(image, (SIZE, SIZE), interpolation=cv2.INTER_AREA)
            cv2.imwrite(str(to.with_suffix(ending)), small, how)

        yield "OpenCV", opencv
    with contextlib.suppress(ImportError, OSError):
        # As many threads as workers, like all contestants, not that many for each worker.
        os.environ.setdefault("VIPS_CONCURRENCY", "1")
        import pyvips

        pyvips.cache_set_max(0)

        def vips(file: Path, to: Path) -> None:
            image = pyvips.Image.new_from_file(str(file), access="sequential")
            small = image.resize(SIZE / image.width, kernel="linear")
            options = {"compression": 1} if format == "png" else {"Q": 90}
            small.write_to_file(str(to.with_suffix(ending)), **options)

        yield "pyvips", vips
    with contextlib.suppress(ImportError):
        import torch
        import torchvision
        from torchvision.transforms import functional

        torch.set_num_threads(1)
        io = torchvision.io

        def vision(file: Path, to: Path) -> None:
            image = io.decode_image(io.read_file(str(file)), io.ImageReadMode.GRAY)
            small = functional.resize(image, [SIZE, SIZE], antialias=True)
            if format == "png":
                io.write_png(small, str(to.with_suffix(ending)), compression_level=1)
            else:
                io.write_jpeg(small, str(to.with_suffix(ending)), quality=90)

        yield "torchvision", vision


def ours(source: Path, target: Path, *, format: str, workers: int) -> None:
    """The command's own path, processes and all."""
    data_prep.resize_folder(
        source, target, size=SIZE, format=format, num_workers=workers, progress=False
    )


def in_threads(source: Path, target: Path, *, work: Contestant, workers: int) -> None:
    """A rival in a pool of as many threads, as the article does it."""
    target.mkdir()
    files = sorted(source.glob("*.png"))
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(lambda file: work(file, target / file.name), files))


def seconds(work: Callable[[Path, Path], None], source: Path, scratch: Path) -> tuple[float, float]:
    """Wall and processor time of one round into a fresh folder."""
    target = scratch / "out"
    taken = seconds_of(lambda: work(source, target))
    shutil.rmtree(target)
    return taken


def make_sources(scratch: Path, images: int) -> dict[str, Path]:
    """The two sets of 1024 px files."""
    places = {"demo files": scratch / "demo", "adaptive files": scratch / "adaptive"}
    for place in places.values():
        place.mkdir()
    kinds = ((), ("Effusion",), ("Mass", "Edema"), ("Infiltration",))
    for at in range(images):
        pixels = generate_xray(0, at + 1, 0, kinds[at % len(kinds)])
        name = f"{at + 1:08d}_000.png"
        (places["demo files"] / name).write_bytes(encode_png(pixels, is_noisy=True))
        Image.fromarray(pixels).save(places["adaptive files"] / name)
    return places


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workers", type=int, default=core_count())
    options = common.parse(parser, images=24)
    images, rounds = options.images, options.rounds
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place)
        sources = make_sources(scratch, images)
        for kind, source in sources.items():
            for format in ("png", "jpeg"):
                contest(kind, source, scratch, format, rounds, options.workers)


def contest(kind: str, source: Path, scratch: Path, format: str, rounds: int, workers: int) -> None:
    entries: dict[str, Callable[[Path, Path], None]] = {
        "ours": partial(ours, format=format, workers=workers),
        "the article's way": partial(in_threads, work=article, workers=workers),
    }
    for name, work in rivals(format):
        entries[name] = partial(in_threads, work=work, workers=workers)
    loads = {name: partial(seconds, work, source, scratch) for name, work in entries.items()}
    print(f"{kind}, to grey {format}, {workers} workers")
    for unit, times in zip(("s/round", "CPU s/round"), interleave(loads, rounds), strict=True):
        for name in list(entries)[1:]:
            report(f"resize, {kind}, {format}", unit, times["ours"], times[name], name)


if __name__ == "__main__":
    main()
