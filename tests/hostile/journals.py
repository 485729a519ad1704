"""Journals of batches, and sweeps' files, that are damaged or mean harm."""

import json
import os
from pathlib import Path

from hostile.case import Case, Content, Lay, laid

RUN = {
    "notebook": "PyTorch_MultiGPU",
    "framework": "PyTorch",
    "kernel": "pytorch",
    "devices": 1,
}


def journal(**more: str) -> str:
    return json.dumps(
        {
            "started": "2026-11-22T09:00:00+00:00",
            "recipe": "demo",
            "data": "nowhere",
            "warmup_epochs": 0,
            "runs": [RUN | more],
        }
    )


def resumed(content: Content, run: str = "", make: Content = Path.mkdir) -> Lay:
    """An experiment with this journal, the folder of a run, and a file outside of it."""
    files: dict[str, Content] = {"precious": "years of work"}
    files["../runs/given/experiment.json"] = content
    if run:
        files[f"../runs/given/{run}"] = make
    return laid("rosetta run --resume given", files)


def sweep(text: str) -> Lay:
    return laid("rosetta run --dry-run --recipe {}/sweep.toml", {"sweep.toml": text})


OUTSIDE = "names a folder outside of the experiment"
KEEPS = ("precious",)

CASES = [
    Case("journal: cut off", resumed(journal()[:100]), "not a JSON file of this"),
    Case("journal: a pipe", resumed(os.mkfifo), r"experiment\.json: .*not a file"),
    Case(
        "run: climbs out",  # to the folder beside the runs
        resumed(journal(variant="/../../../strange"), "PyTorch_MultiGPU-1x-"),
        OUTSIDE,
        keeps=KEEPS,
    ),
    Case(
        "run: its folder is a link",
        resumed(journal(), "PyTorch_MultiGPU-1x", lambda path: path.symlink_to("../../strange")),
        OUTSIDE,
        keeps=KEEPS,
    ),
    Case("sweep: nested 100,000 deep", sweep("seeds = " + "[" * 10**5), "not TOML, as a recipe is"),
    Case("sweep: a key with escapes", sweep('"\\u001b[2Jx" = 1'), r"unknown field `\\x1b\[2Jx`"),
]
