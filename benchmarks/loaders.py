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
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = {
    "pytorch": "PyTorch_MultiGPU",
    "keras": "Keras_MultiGPU",
    "tensorflow": "TensorFlow_MultiGPU",
    "mxnet": "MXNet_Gluon_MultiGPU",
    "chainer": "Chainer_MultiGPU",
}
KERNELS = {name: "tensorflow" if name == "keras" else name for name in NOTEBOOKS}
FORMATS = ("png", "jpeg", "packed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 rounds of half a second")
    parser.add_argument("--frameworks", default=",".join(NOTEBOOKS))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    names = given.frameworks.split(",")
    if unknown := set(names) - set(NOTEBOOKS):
        parser.error(f"unknown framework '{unknown.pop()}': it is one of {', '.join(NOTEBOOKS)}")
    if given.inside is not None:
        measure(names[0], given.inside, given.workers, *((2, 0.5) if given.quick else (7, 2.0)))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), given.images)
        for name in names:
            print(f"{name}, {given.workers} workers", flush=True)
            python = ROOT / ".venvs" / KERNELS[name] / "bin" / "python"
            words = ["--inside", folder, "--frameworks", name, "--workers", str(given.workers)]
            if given.quick:
                words.append("--quick")
            command = [python, "-W", "ignore", __file__, *words]
            # TensorFlow's and autograph's remarks go to stderr: shown only if it fails.
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
            if done.returncode:
                print(f"failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")


def make_files(folder: Path, images: int) -> None:
    """The same X-rays in each form; of the rival's RGB files three equal planes."""
    from PIL import Image

    import data_prep

    source = folder / "source"
    data_prep.make_demo(source, images=images, progress=False)
    for format in ("png", "jpeg"):
        data_prep.resize_folder(source, folder / format, size=264, format=format, progress=False)
    data_prep.pack_folder(folder / "png", folder / "packed", progress=False)
    (folder / "rgb" / "images").mkdir(parents=True)
    for file in (folder / "png" / "images").glob("*.png"):
        Image.open(file).convert("RGB").save(folder / "rgb" / "images" / file.name)


def measure(framework: str, folder: Path, workers: int, rounds: int, seconds: float) -> None:
    from helpers import loading
    from helpers.cells import run_cells

    sys.path.insert(0, str(ROOT / "benchmarks"))
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
        loaders[format] = names["training_batches"]
    speeds: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(rounds):
        for name, batches in loaders.items():
            speeds[name].append(loading.images_per_second(batches, workers, seconds=seconds))
    theirs = speeds["article"]
    for format in FORMATS:
        ratio = statistics.median(a / b for a, b in zip(speeds[format], theirs, strict=True))
        mine, other = statistics.median(speeds[format]), statistics.median(theirs)
        print(f"  {format:7}{mine:8,.0f} images/s, the article's {other:6,.0f}: {ratio:6.1f} times")
        figure = {
            "figure": f"loader, {framework}, {format}, {workers} workers",
            "unit": "images/s",
            "ours": mine,
            "rival": other,
            "rival_name": "the article's loader on RGB PNGs",
            "ratio": ratio,
            "rounds": rounds,
        }
        print(json.dumps(figure), flush=True)


if __name__ == "__main__":
    main()
