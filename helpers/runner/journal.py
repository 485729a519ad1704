"""Read and write an experiment's journal, ``experiment.json``: the state of each of its runs.

A journal may come from an untrusted source together with its experiment, and it decides which
folders are emptied. It is therefore checked against its schema before it is used.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from helpers import paths
from helpers.errors import UserError
from helpers.recipe import digest_now
from helpers.runner.plans import PARAMETERS, Plan, RunState
from helpers.training import parameters, schemas, strict_json

FILE = "experiment.json"
FORMER = "batch.json"
"""Its name in the first version."""
SCHEMA_FILE = Path(__file__).with_name("journal.schema.json")
SCHEMA = 2
OTHERS = ("launcher", "recipe_digests")
"""Fields of a plan that are no parameters of its notebooks."""


def read(folder: Path) -> tuple[Plan, dict[str, Any]]:
    """The plan with the state of its runs, and the journal's other fields.

    Raises:
        FileNotFoundError: there is none.
    """
    path = folder / FILE
    if not path.exists():
        path = folder / FORMER
    if not path.exists():
        raise FileNotFoundError(folder / FILE)
    content = strict_json.read(path, verbatim=["data", "recipe"])  # to be found again
    if isinstance(content, dict):
        content = _of_now(content, path)
    schemas.check(SCHEMA_FILE, content, path)
    runs = []
    for kept in content["runs"]:
        known = {name: value for name, value in kept.items() if not name.startswith("process")}
        # The oldest journals have one seed for the whole experiment.
        known["seed"] = kept.get("seed", content.get("seed", 0))
        runs.append(RunState(**known))
    if len({run.folder for run in runs}) < len(runs):
        raise UserError(f"{path}: two of its runs have the same folder; start a new experiment")
    fields = {name: content[name] for name in (*PARAMETERS, *OTHERS) if name in content}
    fields["warmup_epochs"] = parameters.epochs_of_warmup(fields.get("warmup_epochs", "default"))
    digests = fields.get("recipe_digests", {})
    fields["recipe_digests"] = {name: digest_now(digest) for name, digest in digests.items()}
    return Plan(runs=runs, **fields), content


def folders() -> list[Path]:
    """The folders under ``runs/`` that have a journal, by name; ``latest`` is a link to one."""
    found = {path.parent for name in (FILE, FORMER) for path in paths.RUNS.glob(f"*/{name}")}
    return sorted(folder for folder in found if not folder.is_symlink())


def _of_now(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """A journal of the first version, with today's names."""
    if content.get("schema", 1) != 1 or content.get("schema") is True:
        return content
    found = {key: value for key, value in content.items() if key not in ("batch", "workers")}
    found |= {"schema": SCHEMA, "experiment": content.get("batch", path.parent.name)}
    workers = content.get("workers", "default")
    if isinstance(workers, int):
        raise UserError(
            f"{path}: begun with {workers} loader workers for all devices together; they are given "
            "for each device now: start a new experiment with --num-workers"
        )
    return found | {"num_workers": workers}


def check(folder: Path, plan: Plan, about: Mapping[str, Any]) -> None:
    """Check that the journal can be read again, before it is written for the first time."""
    schemas.check(SCHEMA_FILE, _content(folder, plan, about), folder / FILE)


def write(folder: Path, plan: Plan, about: Mapping[str, Any]) -> None:
    """Replace the journal with the plan as it stands, and ``about`` the experiment."""
    content = _content(folder, plan, about)
    paths.write_atomically(folder / FILE, json.dumps(content, indent=1) + "\n")
    (folder / FORMER).unlink(missing_ok=True)


def _content(folder: Path, plan: Plan, about: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "experiment": folder.name,
        **about,
        **plan.parameters(),
        **{name: getattr(plan, name) for name in OTHERS},
        "runs": [asdict(state) for state in plan.runs],
    }
