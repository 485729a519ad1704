"""Read and write an experiment's journal, ``experiment.json``: its plan and its runs' states."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from helpers import paths
from helpers.errors import UserError
from helpers.record import json_files
from helpers.runner.plans import Plan

FILE = "experiment.json"


class About(msgspec.Struct):
    """What a journal says of its experiment beside the plan."""

    started: str
    finished: str | None
    """When every run had had its turn."""


def read(folder: Path) -> tuple[Plan, About]:
    """The plan with the state of its runs, and what the journal says beside it.

    Raises:
        FileNotFoundError: there is none.
    """
    path = folder / FILE
    if not path.exists():
        raise FileNotFoundError(path)
    content = json_files.read(path, verbatim=["data", "recipe"])  # to be found again
    try:
        plan, about = msgspec.convert(content, Plan), msgspec.convert(content, About)
    except msgspec.ValidationError as error:
        raise UserError(f"{path}: not a journal of this project ({error})") from None
    for run in plan.runs:  # each of these folders is emptied
        if (folder / run.folder).resolve().parent != folder.resolve():
            raise UserError(f"{path}: names a folder outside of the experiment: {run.folder}")
    return plan, about


def folders() -> list[Path]:
    """The folders under ``runs/`` that have a journal, by name; ``latest`` is a link to one."""
    found = (path.parent for path in paths.RUNS.glob(f"*/{FILE}"))
    return sorted(folder for folder in found if not folder.is_symlink())


def write(folder: Path, plan: Plan, about: Mapping[str, Any]) -> None:
    """Replace the journal with the plan as it stands, and ``about`` the experiment."""
    content = {**about, **asdict(plan)}
    paths.write_atomically(folder / FILE, json.dumps(content, indent=1) + "\n")
