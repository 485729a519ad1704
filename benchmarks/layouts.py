"""Try `data-prep init` on small replicas of public image data sets.

    python benchmarks/layouts.py [--quick] [--only TEXT] [--train NOTEBOOK,...]

layouts.txt describes the replicas: each has the names of the published files and folders, with
generated images. If `init` recognises a replica, `resize` follows; else the commands that
layouts.txt gives. With `--train`, the replicas that have enough images for it are previewed,
resized and trained on for one epoch, with the recipe that `init` wrote.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import shlex
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import quick
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import UID, ExplicitVRLittleEndian
from pydicom.uid import SecondaryCaptureImageStorage as SecondaryCapture

from data_prep.__main__ import main as data_prep
from helpers import paths

REPEATED = re.compile(r"\*(\d+) (.+)")
"""`*40 TEXT`: the text 40 times, with its number in place of #, and <a|b> in turn."""
NOT_OF_PREVIEW = ("--rgb", "--resize-mode", "center-crop")
HOW = ("--devices", "1", "--cores-per-device", "1", "--epochs", "1", "--batch-size", "4")
"""As on a small machine without a GPU."""


def expand(text: str) -> list[str]:
    """Return the names of a pattern such as {cat,dog}/{1,2}.jpg; braces may be nested."""
    found = re.search(r"\{([^{}]*)\}", text)
    if found is None:
        return [text]
    start, end = text[: found.start()], text[found.end() :]
    names = [name for inner in found[1].split(",") for name in expand(start + inner + end)]
    return [*dict.fromkeys(names)]


def repeated(text: str) -> list[str]:
    """Return the texts that `REPEATED` stands for, or else the text itself."""
    if not (found := REPEATED.match(text)):
        return [text]

    def numbered(number: int) -> str:
        def chosen(among: re.Match[str]) -> str:
            return (texts := among[1].split("|"))[number % len(texts)]

        return re.sub("<([^<>]*)>", chosen, found[2]).replace("#", str(number))

    return [numbered(number) for number in range(1, int(found[1]) + 1)]


def picture(file: Path, pixels: np.ndarray) -> None:
    """Write an image, as DICOM if its name says so, and else as PNG."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".dcm":
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = SecondaryCapture, UID("1.2")
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        dicom = FileDataset(str(file), {}, file_meta=meta, preamble=bytes(128))
        dicom.Rows, dicom.Columns = pixels.shape[:2]
        dicom.SamplesPerPixel, dicom.PhotometricInterpretation = 1, "MONOCHROME2"
        dicom.BitsAllocated, dicom.BitsStored, dicom.HighBit = 8, 8, 7
        dicom.PixelRepresentation, dicom.PixelData = 0, pixels[..., 0].tobytes()
        dicom.save_as(file)
    else:
        Image.fromarray(pixels).save(file, "PNG")


def lay(folder: Path, lines: list[str]) -> list[str]:
    """Write a replica, and return the commands to try after init."""
    commands = []
    for at, line in enumerate(lines):
        name, _, text = line.partition(" = ")
        if line.startswith("> "):
            commands.append(line[2:])
        elif text:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            text = text.replace("\\t", "\t")
            rows = [row for rows in text.split(" / ") for row in repeated(rows)]
            (folder / name).write_text("\n".join(rows) + "\n")
        else:
            images = [image for pattern in repeated(line) for image in expand(pattern)]
            for number, image in enumerate(images):
                rng = np.random.default_rng([at, number])
                image, _, target = image.partition(" -> ")
                picture(folder / (target or image), rng.integers(0, 256, (20, 24, 3), np.uint8))
                if target:
                    (folder / image).parent.mkdir(parents=True, exist_ok=True)
                    (folder / image).symlink_to(folder / target)
    return commands


def run(words: list[str], home: Path) -> list[str]:
    """Run and report a command, and return the lines that it prints, or nothing if it fails."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = data_prep(words)
    lines = said.getvalue().replace("\r", "\n").splitlines()
    lines = [line for line in lines if line and "%|" not in line]  # no progress bar
    text = f"{shlex.join(words)}: {f'exit {code}: {lines[-1]}' if code else lines[0]}"
    print("  " + text.replace(f"{home}/", ""), flush=True)
    return [] if code else lines


def train(recipe: str, notebook: str) -> None:
    """Train one epoch, and report images, classes, metric and time."""
    name, began = f"layouts-{time.time_ns()}", time.monotonic()
    command = [str(paths.VENVS / "lab/bin/rosetta"), "run", "--recipe", recipe]
    command += ["--notebooks", notebook, *HOW, "--name", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seconds = f"{time.monotonic() - began:.0f} s"
    records = [*(paths.RUNS / name).glob("*/record.json")]
    if done.returncode or not records:
        print(f"  {notebook}: exit {done.returncode} after {seconds}:\n{done.stdout}", flush=True)
        return
    record = json.loads(records[0].read_text(encoding="utf-8"))
    images, classes = sum(record["data"]["images"].values()), len(record["data"]["classes"])
    metric = "top1" if "top1" in record["test"] else "mean_auc"
    what = f"{images} images, {classes} classes, test {metric} {record['test'].get(metric)}"
    print(f"  {notebook}: {record['state']}, {what}, {seconds}", flush=True)


def attempt(folder: Path, commands: list[str], notebooks: list[str]) -> None:
    """Run init and the further commands until one works, then what it recommends."""
    for command in ("init SET", *commands):
        words = [word.replace("SET", str(folder)) for word in shlex.split(command)]
        if lines := run(words, folder.parent):
            break
    for line in lines:
        if line.startswith("  data-prep resize"):
            _, command, source, target, *reader = shlex.split(line)
            small = ["--size", "48" if notebooks else "16", "--num-workers", "1"]
            if notebooks:
                shown = [word for word in reader if word not in NOT_OF_PREVIEW]
                run(["preview", source, *shown], folder.parent)
            run([command, source, target, *reader, *small], folder.parent)
        elif line.startswith("  rosetta run"):
            for notebook in notebooks:
                train(shlex.split(line)[-1], notebook)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="try layouts with this text in their name")
    parser.add_argument(
        "--train", default="", metavar="NOTEBOOK,...", help="train one epoch with these notebooks"
    )
    options = quick.parse(parser, only="Dog")
    notebooks = [name for name in options.train.split(",") if name]
    described = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    for block in re.split(r"\n(?=\S)", described):
        name, *lines = block.splitlines()
        if name.startswith("#") or options.only.lower() not in name.lower():
            continue
        if notebooks and not any(line.strip().startswith("*") for line in lines):
            continue
        print(name)
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home) / "set"
            folder.mkdir()
            commands = lay(folder, [line.strip() for line in lines if line.strip()])
            attempt(folder, commands, notebooks)


if __name__ == "__main__":
    main()
