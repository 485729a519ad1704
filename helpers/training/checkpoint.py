"""Write and read checkpoints: weights, optimiser state and the measurements so far.

The order of the images and every crop follow from seed, epoch and image. So a run that was killed
and resumed takes the same steps as one that was not. Reading the file executes nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from helpers import record
from helpers.errors import UserError
from helpers.networks.weights import Arrays, under
from helpers.networks.weights import save as save_arrays
from helpers.record import Run

FILE = "checkpoint.safetensors"
_UNREADABLE = SafetensorError, OSError, TypeError, ValueError, KeyError, RecursionError


@dataclass(frozen=True)
class Checkpoint:
    """Where training begins: after epoch 0 with the initial weights, or after a later one.

    A run resumes only if what it is ``about`` is the same. ``run`` is the id of the run that trains
    now, ``code`` the digest of its code, ``changed_code`` whether other code ran before it resumed.
    ``restarts`` has the epoch after which each resumed attempt continued.
    """

    weights: Arrays
    folder: Path
    about: dict[str, Any]
    run: str = ""
    code: str | None = None
    changed_code: bool = False
    optimizer: Arrays = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    first_step: float = float("nan")
    restarts: tuple[int, ...] = ()

    @property
    def epoch(self) -> int:
        """Epochs that are done."""
        return len(self.history)

    def as_record(self) -> dict[str, Any]:
        """The record's section ``checkpoint``."""
        said: dict[str, Any] = {"resumed_after": self.epoch}
        said |= {"restarts": list(self.restarts)} if self.restarts else {}
        return said | ({"changed_code": True} if self.changed_code else {})


def save(
    begin: Checkpoint,
    history: Sequence[Mapping[str, Any]],
    first_step: float,
    weights: Mapping[str, np.ndarray],
    optimizer: Mapping[str, np.ndarray],
) -> None:
    """Replace the last checkpoint; if an ``OSError`` is raised, that one stays."""
    arrays = {f"weights/{name}": array for name, array in weights.items()}
    arrays |= {f"optimizer/{name}": array for name, array in optimizer.items()}
    said = {"schema": record.SCHEMA, "about": begin.about, "code": begin.code}
    said |= {"history": list(history), "first_step": first_step, "restarts": begin.restarts}
    save_arrays(begin.folder / FILE, arrays, {"said": json.dumps(said)})


def begin(run: Run, initial: Arrays, *, resume: bool) -> Checkpoint:
    """The start of ``run``: with ``resume`` the last checkpoint in its folder, else the beginning.

    Raises:
        UserError: the checkpoint cannot be read, or is of another recipe, images or framework.
    """
    path = run.folder / FILE
    about, framework = dict(run.content["recipe"]), run.content["framework"]
    del about["beside"]  # where the custom code lies does not matter
    about["images"] = run.content["data"].get("sha256")
    about["framework"] = f"{framework['name']} in kernel {framework['kernel']}"
    code = run.content["run"]["code"]
    start = Checkpoint(initial, run.folder, about, run.id, code)
    if not resume:
        path.unlink(missing_ok=True)  # else a later resume would take it for this run's
        return start
    if not path.exists():
        print(f"Nothing to resume: no checkpoint in {run.folder}; training begins anew")
        return start
    try:
        with safe_open(path, "numpy") as file:
            said = json.loads(file.metadata()["said"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except _UNREADABLE as error:
        raise UserError(
            f"{path}: cannot be read ({error}); remove it to train from the beginning"
        ) from None
    if differing := sorted(key for key in about if said["about"].get(key) != about[key]):
        had = ", ".join(f"{key} {said['about'].get(key)}" for key in differing)
        raise UserError(
            f"{path}: belongs to another run ({had}); use its settings, or remove this file"
        )
    found = replace(
        start,
        weights=under("weights/", arrays),
        optimizer=under("optimizer/", arrays),
        history=said["history"],
        first_step=said["first_step"],
        restarts=(*said["restarts"], len(said["history"])),
        changed_code=said.get("code") != code,
    )
    print(f"Resumed after epoch {found.epoch} of {about['epochs']}, from {path}")
    if found.changed_code:
        print("The code has changed since: the epochs come from different programs")
    return found


def epochs_in(folder: Path) -> int:
    """The number of finished epochs in the checkpoint of a run's folder; 0 without one."""
    try:
        with safe_open(Path(folder) / FILE, "numpy") as file:
            return len(json.loads((file.metadata() or {})["said"])["history"])
    except _UNREADABLE:
        return 0
