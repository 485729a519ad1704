"""Read and write an experiment's journal, ``experiment.json``: the state of each of its runs.

A journal may come from an untrusted source together with its experiment, and it decides which
folders are emptied. It is therefore checked against its type before it is used.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from helpers import paths
from helpers.errors import UserError
from helpers.recipe import digest_now
from helpers.record import json_files
from helpers.record.types import Sha256
from helpers.runner.plans import PARAMETERS, Plan, RunState
from helpers.training import parameters

FILE = "experiment.json"
FORMER = "batch.json"
"""Its name in the first version."""
SCHEMA = 2
OTHERS = ("launcher", "recipe_digests")
"""Fields of a plan that are no parameters of its notebooks."""

Default = Literal["default"]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Most = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_NAME = r"[^/\x00-\x1f\x7f-\x9f]+\Z"
"""A part of a path, which leads to no other folder."""


class Entry(TypedDict):
    """One run of an experiment. Names in it become names of folders and notebooks."""

    notebook: Annotated[str, Meta(max_length=200, pattern=rf"^(?!\.){_NAME}")]
    framework: Annotated[str, Meta(max_length=200, pattern=rf"^{_NAME}")]
    kernel: Annotated[str, Meta(max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")]
    devices: Annotated[int, Meta(ge=1, le=65536)]
    sha256: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?\Z")]
    gpus: NotRequired[Annotated[int, Meta(ge=0, le=65536)] | None]
    nodes: NotRequired[Annotated[int, Meta(ge=1, le=1024)]]
    state: NotRequired[
        Literal["waiting", "running", "finished", "failed", "skipped", "interrupted"]
    ]
    reason: NotRequired[str | None]
    seconds: NotRequired[Annotated[float, Meta(ge=0, le=1e9)] | None]
    seed: NotRequired[Seed]
    precision: NotRequired[Literal["fp32", "tf32", "bf16", "fp16"]]
    execution: NotRequired[Literal["default", "eager", "compiled"]]
    variant: NotRequired[Annotated[str, Meta(max_length=100, pattern=r"^[a-z0-9-]*\Z")]]
    earlier: NotRequired[Annotated[list[str], Meta(max_length=10000)]]
    process: NotRequired[Any]  # of older versions, as the next
    process_started: NotRequired[Any]


class Journal(TypedDict):
    """An experiment: its parameters, and the state of its runs."""

    started: str
    finished: str | None  # when every run had had its turn
    recipe: str
    data: Annotated[str, Meta(min_length=1)]
    runs: Annotated[list[Entry], Meta(min_length=1, max_length=10000)]
    schema: NotRequired[Literal[2]]
    experiment: NotRequired[str]  # its folder's name
    epochs: NotRequired[Most | Default]
    batch_size: NotRequired[Most | Default]  # images per device
    num_workers: NotRequired[Annotated[int, Meta(ge=0, le=1024)] | Default]  # per device
    warmup_epochs: NotRequired[Annotated[float, Meta(ge=0, le=1e9)] | Default]
    launcher: NotRequired[
        Annotated[
            str,
            Meta(
                max_length=10000,
                pattern=r"^(auto|srun|torchrun|mpiexec(:[A-Za-z0-9][A-Za-z0-9._,:-]*)?)\Z",
            ),
        ]
    ]
    cores_per_device: NotRequired[Annotated[int, Meta(ge=1)] | Literal["auto", "shared"]]
    loader_cores: NotRequired[Literal["default", "device", "own", "siblings"]]
    strict_nodes: NotRequired[bool]
    profile_steps: NotRequired[Annotated[int, Meta(ge=0, le=100)]]
    recipe_digests: NotRequired[dict[str, Sha256]]  # of its file and of its custom code, by name
    seed: NotRequired[Seed]  # of all runs, in journals of the first version


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
    content = json_files.read(path, verbatim=["data", "recipe"])  # to be found again
    if isinstance(content, dict):
        content = _of_now(content, path)
    json_files.check(content, Journal, SCHEMA, path)
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
            f"{path}: has {workers} loader workers for all devices together, but --num-workers "
            "counts them for each device: start a new experiment"
        )
    return found | {"num_workers": workers}


def check(folder: Path, plan: Plan, about: Mapping[str, Any]) -> None:
    """Check that the journal can be read again, before it is written for the first time.

    Raises:
        UserError: it cannot be read, so the experiment could not be resumed.
    """
    json_files.check(_content(folder, plan, about), Journal, SCHEMA, folder / FILE)


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
