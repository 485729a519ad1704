"""Try `data-prep init` on small replicas of public image data sets.

    python benchmarks/layouts.py [--quick] [--only TEXT]

layouts.txt describes the replicas: each has the names of the published files and folders, with
generated images. If `init` recognises a replica, `resize` follows; else the commands that
layouts.txt gives.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import shlex
import tempfile
from pathlib import Path

import numpy as np
import quick
from PIL import Image

from data_prep.__main__ import main as data_prep


def expand(text: str) -> list[str]:
    """Return the names of a pattern such as {cat,dog}/{1,2}.jpg; braces may be nested."""
    found = re.search(r"\{([^{}]*)\}", text)
    if found is None:
        return [text]
    start, end = text[: found.start()], text[found.end() :]
    names = [name for inner in found[1].split(",") for name in expand(start + inner + end)]
    return [*dict.fromkeys(names)]


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
            (folder / name).write_text("\n".join(text.split(" / ")) + "\n")
        else:
            for number, image in enumerate(expand(line)):
                (folder / image).parent.mkdir(parents=True, exist_ok=True)
                rng = np.random.default_rng([at, number])
                pixels = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / image, "PNG")
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


def attempt(folder: Path, commands: list[str]) -> None:
    """Run init and the further commands until one works, then the resize that it recommends."""
    for command in ("init SET", *commands):
        words = [word.replace("SET", str(folder)) for word in shlex.split(command)]
        if lines := run(words, folder.parent):
            break
    for line in lines:
        if line.startswith("  data-prep resize"):
            run([*shlex.split(line)[1:], "--size", "16", "--num-workers", "1"], folder.parent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="try layouts with this text in their name")
    options = quick.parse(parser, only="Dog")
    described = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    for block in re.split(r"\n(?=\S)", described):
        name, *lines = block.splitlines()
        if name.startswith("#") or options.only.lower() not in name.lower():
            continue
        print(name)
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home) / "set"
            folder.mkdir()
            attempt(folder, lay(folder, [line.strip() for line in lines if line.strip()]))


if __name__ == "__main__":
    main()
