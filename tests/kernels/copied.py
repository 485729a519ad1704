"""What a notebook's section "In another project" promises: its cells train without ``helpers``."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

import numpy as np
from PIL import Image

from helpers import paths

SMALL = {
    "epochs: int = 5": "epochs: int = 3",
    "batch_size: int = 64": "batch_size: int = 16",
    "learning_rate: float = 1e-4": "learning_rate: float = 3e-4",
    "crop: int = 224": "crop: int = 32",
    "workers: int = 4": "workers: int = 2",
}
"""What a user sets in the copy of `standalone.py`, so that a core trains in seconds."""


def assert_trains(
    notebook: str, folder: Path, launcher: Sequence[str] = (sys.executable,), **env: str
) -> None:
    """The cells, copied as the notebook says, tell bright images from dark ones."""
    folder.mkdir()
    write_images(folder / "images")
    (folder / "standalone.py").write_text(small(), encoding="utf-8")
    script = f"{copied_cells(notebook)}\nimport sys\nassert 'helpers' not in sys.modules\n"
    (folder / "train.py").write_text(script, encoding="utf-8")
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*launcher, "train.py"],
        cwd=folder,
        env=outside | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    epochs = re.findall(r"epoch (\d): training loss (\S+),.*right (\S+),", done.stdout)
    assert [number for number, *_ in epochs] == ["1", "2", "3"], done.stdout
    (_, first, _), *_, (_, last, right) = epochs
    assert float(right) > 0.9, done.stdout
    assert float(last) < float(first) / 2, done.stdout  # by luck, some weights tell them apart


def copied_cells(notebook: str) -> str:
    """Sections 3 to 9, with the lines that take the place of this project's in section 3."""
    content = json.loads((paths.NOTEBOOKS / f"{notebook}.ipynb").read_text(encoding="utf-8"))
    found, section = [], 0
    for cell in content["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            section = int(next(iter(re.findall(r"^## (\d+)\.", source, re.M)), section))
        elif section == 3:
            found += ["\n".join(kept(source, content)), lines_to_replace(content)]
        elif 3 < section < 10:
            found.append(source)
    return "\n\n".join(found)


OURS = re.compile(r"\b(helpers|precisions|this_run)\b")
FROM_THE_FIRST = "replace all from the first that names `helpers`"


def kept(source: str, content: dict) -> Iterator[str]:
    """The lines of section 3 that the last cell has the reader keep."""
    if FROM_THE_FIRST in "".join(content["cells"][-1]["source"]):
        return takewhile(lambda line: not OURS.search(line), source.splitlines())
    return (line for line in source.splitlines() if not OURS.search(line))


def lines_to_replace(content: dict) -> str:
    """The code that the last cell shows."""
    (code,) = re.findall(r"```python\n(.*?)```", "".join(content["cells"][-1]["source"]), re.S)
    return code


def small() -> str:
    text = (paths.NOTEBOOKS / "standalone.py").read_text(encoding="utf-8")
    for usual, little in SMALL.items():
        assert usual in text
        text = text.replace(usual, little)
    return text


def write_images(folder: Path) -> None:
    """Images of several sizes, whose classes are their brightness."""
    random = np.random.default_rng(0)
    for part, images in (("train", 96), ("valid", 23)):
        for name, least in (("bright", 120), ("dark", 0)):
            (folder / part / name).mkdir(parents=True)
            for number in range(images):
                height, width = random.integers(34, 44, 2)
                pixels = random.integers(least, least + 128, (height, width, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{number}.png")
