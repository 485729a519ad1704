"""Runs a notebook, changed or not, in a forked process to the end of its test; how that ended.

On two virtual devices, with a small network, 200 images and two epochs.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

LATE = "time limit"
"""The error of a mutant that takes too long: on a faster machine it may run to its end."""


class Noticed(Exception):
    """The fairness check has rows that fail; its argument are their names."""


@dataclass(frozen=True)
class Outcome:
    """How a mutant ended: by ``error``, caught by ``rows``, or with what it ``trained``."""

    error: str = ""
    rows: tuple[str, ...] = ()
    trained: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"error: {self.error}"
        return f"caught: {', '.join(self.rows)}" if self.rows else "SURVIVED"


def write_recipes(folder: Path, module: str) -> dict[str, Path]:
    """Two recipes for a framework's small network: with momentum, and with Adam.

    The second is tried on what survives the first.
    """
    from own_networks import recipe_of_classes, recipe_of_findings

    found = {}
    for name, write in {"momentum": recipe_of_classes, "adam": recipe_of_findings}.items():
        path = write(folder / name, module)
        path.write_text(path.read_text().replace("milestones = [2, 4]", "milestones = [1]"))
        found[name] = path
    return found


def outcome_of(notebook: str, changes: Mapping[str, str], recipe: Path, limit: int) -> Outcome:
    """Run a notebook in a forked process, with other texts for some of its cells."""
    with tempfile.TemporaryDirectory(prefix="notebook-mutant-") as name:
        folder = Path(name)
        process = os.fork()
        if not process:
            _run_forked(notebook, changes, recipe, folder, limit)
        _, status = os.waitpid(process, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # what it started
        if os.WIFSIGNALED(status):
            by = os.WTERMSIG(status)
            return Outcome(LATE if by == signal.SIGALRM else f"signal {by}")
        said = json.loads((folder / "outcome.json").read_text())
        return Outcome(said["error"], tuple(said["rows"]), said["trained"])


def _run_forked(
    notebook: str, changes: Mapping[str, str], recipe: Path, folder: Path, limit: int
) -> None:
    """Leave the outcome in the folder; never returns."""
    try:
        os.setsid()
        signal.alarm(limit)
        log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["TMPDIR"], tempfile.tempdir = str(folder), None
        said: dict[str, Any] = {"error": "", "rows": [], "trained": ""}
        try:
            said["trained"] = _trained(notebook, changes, recipe, folder)
        except Noticed as noticed:
            said["rows"] = noticed.args[0]
        except BaseException as error:
            lines = str(error).strip().splitlines() or [""]
            said["error"] = f"{type(error).__name__}: {lines[-1]}"[:200]
        (folder / "outcome.json").write_text(json.dumps(said))
    finally:
        os._exit(0)


def _trained(notebook: str, changes: Mapping[str, str], recipe: Path, folder: Path) -> str:
    """Run the notebook; a digest of its weights and losses.

    Raises:
        Noticed: by the fairness check.
    """
    from helpers import record
    from helpers.frameworks import replicas
    from helpers.runner.notebook_code import run_cells

    # Replicas are forked from this process: a server would import the framework for each mutant.
    vars(replicas)["get_context"] = lambda method: multiprocessing.get_context("fork")

    def changed(text: str) -> str:
        return changes.get(text, text).replace("run.measure(", "dict(")  # nothing is measured

    own = folder / "run"
    given: dict[str, Any] = {"run": str(own), "recipe": str(recipe), "devices": 2, "batch_size": 8}
    given |= {"epochs": 2, "num_workers": 1}
    run_cells(f"{notebook}_MultiGPU", until="run.chart()", changed=changed, **given)
    content = record.read(own)
    checks = content["fairness"]["checks"]
    if rows := [each["check"] for each in checks if each["verdict"] in ("fail", "different")]:
        raise Noticed(rows)
    losses = [[row["train_loss"], row["valid_loss"]] for row in content["epochs"]]
    said = json.dumps([losses, content["test"]["loss"]])
    weights = (own / "weights.safetensors").read_bytes()
    return sha256(weights + said.encode()).hexdigest()
