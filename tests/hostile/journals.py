"""Journals of batches, and sweeps' files, that are damaged or mean harm."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostile.case import Case

RUN: dict[str, Any] = {
    "notebook": "PyTorch_MultiGPU",
    "framework": "PyTorch",
    "kernel": "pytorch",
    "devices": 1,
}
JOURNAL: dict[str, Any] = {
    "started": "2026-11-22T09:00:00+00:00",
    "recipe": "demo",
    "data": "nowhere",
    "warmup_epochs": 0,
    "runs": [RUN],
}
RESUME = ["rosetta", "run", "--resume", "given"]


def given(folder: Path) -> Path:
    """The batch, under the runs that the command looks into."""
    batch = folder.parent / "runs" / "given"
    batch.mkdir(parents=True)
    return batch


def raw(text: str | bytes) -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        content = text if isinstance(text, bytes) else text.encode()
        (given(folder) / "experiment.json").write_bytes(content)
        return RESUME

    return lay


def climbs(variant: str) -> Callable[[Path], list[str]]:
    """A run whose folder would be the one beside the runs, with what is in it."""

    def lay(folder: Path) -> list[str]:
        (folder / "precious").write_text("years of work")
        (folder.parent / "runs" / "given" / "PyTorch_MultiGPU-1x-").mkdir(parents=True)
        path = folder.parent / "runs" / "given" / "experiment.json"
        path.write_text(json.dumps(JOURNAL | {"runs": [RUN | {"variant": variant}]}))
        return RESUME

    return lay


def linked(folder: Path) -> list[str]:
    """A run's folder that is a link to a folder outside."""
    (folder / "precious").write_text("years of work")
    batch = given(folder)
    (batch / "experiment.json").write_text(json.dumps(JOURNAL))
    (batch / "PyTorch_MultiGPU-1x").symlink_to(folder)
    return RESUME


def pipe(folder: Path) -> list[str]:
    os.mkfifo(given(folder) / "experiment.json")
    return RESUME


def sweep(text: str | bytes) -> Callable[[Path], list[str]]:
    def lay(folder: Path) -> list[str]:
        path = folder / "sweep.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return ["rosetta", "run", "--dry-run", "--recipe", str(path)]

    return lay


OUTSIDE = "names a folder outside of the experiment"
KEEPS = ("precious",)

CASES = [
    Case("journal: cut off", raw(json.dumps(JOURNAL)[:100]), "not a JSON file of this"),
    Case("journal: a pipe", pipe, r"experiment\.json: not a file"),
    Case("run: climbs out", climbs("/../../../strange"), OUTSIDE, keeps=KEEPS),
    Case("run: its folder is a link", linked, OUTSIDE, keeps=KEEPS),
    Case("sweep: nested 100,000 deep", sweep("seeds = " + "[" * 10**5), "not TOML, as a recipe is"),
    Case("sweep: a key with escapes", sweep('"\\u001b[2Jx" = 1'), r"unknown field `\\x1b\[2Jx`"),
]
