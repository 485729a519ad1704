"""What a notebook's section "In another project" promises: its cells train without ``helpers``."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from own_networks import NETS
from PIL import Image

from helpers import paths, record
from helpers.launch import this_notebook


def write_images(folder: Path) -> None:
    """Images of several sizes, whose classes are their brightness."""
    random = np.random.default_rng(0)
    for part, images in (("train", 96), ("val", 23)):
        for name, least in (("bright", 120), ("dark", 0)):
            (folder / part / name).mkdir(parents=True)
            for number in range(images):
                height, width = random.integers(34, 44, 2)
                pixels = random.integers(least, least + 128, (height, width, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{number}.png")


SHORT_TURNS = f"{paths.ROOT / 'tests' / 'short_turns'}:{paths.ROOT}"
RECIPE = """
[data]
reader = "imagefolder"
folder = "{images}"
image_size = 44
crop = 32
[model]
{module} = "mine.py:net"
[train]
task = "multiclass"
epochs = 3
batch_size = 16
learning_rate = 1e-2
"""


def assert_script_trains(
    notebook: str, folder: Path, launcher: Sequence[str], module: str, **lines: Any
) -> None:
    """The notebook's cells are a script that trains a project's own network on its own images.

    It lies in the project's empty folder, and is started from another one.

    Args:
        lines: the parameters that are set there.
    """
    project, elsewhere = folder / "project", folder / "elsewhere"
    elsewhere.mkdir()
    write_images(project / "images")
    (project / "mine.py").write_text(NETS[module])
    text = RECIPE.format(images=project / "images", module=module)
    (project / "mine.toml").write_text(text)
    script = project / f"{notebook}.py"
    script.write_text(as_script(notebook, recipe=str(project / "mine.toml"), **lines))
    done = subprocess.run(
        [*launcher, script],
        cwd=elsewhere,
        env=os.environ | {"ROSETTA_RUNS": str(project / "runs"), "PYTHONPATH": SHORT_TURNS},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (found,) = (project / "runs").rglob(record.FILE)
    content = record.read(found.parent)
    assert content["state"] == "finished" and content["run"]["notebook"] == notebook
    assert content["fairness"]["comparable"] and content["devices"]["count"] == 2
    first, *_, last = content["epochs"]
    assert last["valid_top1"] > 0.9, done.stdout
    assert last["train_loss"] < first["train_loss"] / 2, done.stdout


def as_script(notebook: str, **lines: Any) -> str:
    """A notebook's code cells one after another, with these parameters in place of its own."""
    cells = this_notebook.code_cells(paths.NOTEBOOKS / f"{notebook}.ipynb")
    text = "\n\n\n".join([*cells[1], *cells[0]])
    for name, value in lines.items():
        text, changed = re.subn(rf"^{name} = .*", f"{name} = {value!r}", text, count=1, flags=re.M)
        assert changed, name
    return text
