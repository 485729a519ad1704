"""The record of a run: one JSON file that is whole at every moment.

A notebook starts a record, adds a section as it reaches it, and finishes it. Each addition is
checked against ``record.schema.json`` and written to a temporary name first, so a reader never
sees half a record. A run that is interrupted says so; one that was killed without a word is found
out by its reader, because its process no longer exists.
"""

import atexit
import json
import math
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from helpers import paths
from helpers.errors import UserError
from helpers.frameworks import rank_info
from helpers.frameworks.devices import Devices, hardware
from helpers.launch import processes
from helpers.recipe import ScaledRecipe
from helpers.training import (
    consistency,
    earlier_schemas,
    environment_variables,
    run_identity,
    schemas,
    strict_json,
    this_notebook,
)
from helpers.training.graceful_stop import Stopped

if TYPE_CHECKING:  # scikit-learn is not loaded to read a record
    from helpers.training.metrics import Evaluation

FILE = "record.json"
SCHEMA_FILE = Path(__file__).with_name("record.schema.json")
_OTHER_KIND = {"gpu": " on CPUs", "cpu": " on GPUs"}


class Run:
    """A run's record while it is written. Make one with :func:`start`.

    Of several ranks the first writes the run's: the others only keep theirs in mind.
    """

    def __init__(
        self, folder: Path, content: dict[str, Any], code: Callable[[], str] | None = None
    ) -> None:
        self.folder = folder
        here = rank_info.here()
        self._kept = here is None or here.rank == 0
        self.content = content | {"run": {"id": secrets.token_hex(8), **content["run"]}}
        self._code = code
        self._began = time.monotonic()  # the clock on the wall can be set back
        if self._kept:
            write(folder, self.content)
            atexit.register(self._left)
        self._stop_watching = _watch_notebook_cells(self)

    @property
    def id(self) -> str:
        """Of this run alone: its weights and its checkpoint carry it too."""
        return str(self.content["run"]["id"])

    def add(self, section: str, value: Any) -> None:
        """Put ``value`` under ``section`` and write the record."""
        changed = {**self.content, "run": self._run(), section: plain(value)}
        check(changed)
        self.content = changed
        self._write()

    def resumes(self, other: str) -> None:
        """Note the id of the run whose checkpoint this one continues."""
        self.content = {**self.content, "run": {**self.content["run"], "resumed": other}}
        self._write()

    def remove(self, *sections: str) -> None:
        """Take out sections that hold no longer; a run that was finished is not, then."""
        if not self.content.keys() & set(sections):
            return
        kept = {name: value for name, value in self.content.items() if name not in sections}
        run = {**kept["run"], "finished": None}
        self.content = {**kept, "state": "running", "reason": None, "run": run}
        self._write()

    def close(self) -> None:
        """This process has begun another run: whatever happens now is not of this one."""
        self._stop_watching()
        atexit.unregister(self._left)
        self._left("another run was begun before the run was finished")

    def finish(self) -> Path:
        """The run is whole. Returns the record's path."""
        self._end("finished", None)
        return self.folder / FILE

    def fail(self, error: BaseException) -> None:
        """The run ended with ``error``: interrupted if it was stopped, else failed."""
        stopped = isinstance(error, KeyboardInterrupt | SystemExit | Stopped)
        lines = f"{type(error).__name__}: {error}".strip().splitlines()
        # An error that carries another process's traceback names the cause in its last line.
        reason = lines[0].rstrip(": ") + (f": {lines[-1]}" if len(lines) > 1 else "")
        self._end("interrupted" if stopped else "failed", reason)

    def _end(self, state: str, reason: str | None) -> None:
        run = {
            **self._run(),
            "finished": datetime.now(UTC).isoformat(),
            "seconds": time.monotonic() - self._began,
        }
        changed = {**self.content, "state": state, "reason": reason, "run": run}
        if self._kept:  # what is of all ranks the first alone has
            check(changed)
        self.content = changed
        self._write()

    def _run(self) -> dict[str, Any]:
        """The section ``run`` with the digest of the code that has run by now."""
        return {**self.content["run"], **({"code": self._code()} if self._code else {})}

    def _left(self, why: str = "the process ended before the run was finished") -> None:
        if self.content["state"] == "running" and self.content["run"]["process"] == os.getpid():
            with suppress(UserError):
                self._end("interrupted", why)

    def _write(self) -> None:
        """Raises UserError where another run has begun in the folder."""
        if not self._kept:
            return
        with suppress(OSError, ValueError, TypeError, KeyError):
            there = json.loads((self.folder / FILE).read_text(encoding="utf-8"))["run"]["id"]
            if there != self.id:
                raise UserError(
                    f"{self.folder}: another run has begun in this folder; run the cells from "
                    "section 2 on again, with another name for run"
                )
        write(self.folder, self.content)


def write(folder: Path, content: Mapping[str, Any]) -> None:
    """Put a record into a run's folder, in the place of an older one."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    paths.write_atomically(folder / FILE, text + "\n")


def start(
    folder: Path,
    *,
    notebook: str,
    framework: str,
    kernel: str,
    versions: Mapping[str, str],
    devices: Devices,
    recipe: ScaledRecipe,
    skipped: Mapping[str, str] = MappingProxyType({}),
    file: Path | None = None,
) -> Run:
    """Begin the record of a run in ``folder``; an older record there is replaced.

    Args:
        notebook: its name, without ``.ipynb``.
        framework: its name, as in the registry.
        kernel: the environment that it runs in.
        versions: by package.
        devices: of the run.
        recipe: scaled to them.
        skipped: what the framework cannot do, and why (its module's ``SKIPPED``); what is said of
            one kind of device only (``tf32 on CPUs``) is kept where the run is on such.
        file: of the notebook, where that is not in ``notebooks/``.
    """
    folder = Path(folder)
    code = run_identity.follow(file or paths.NOTEBOOKS / f"{notebook}{this_notebook.SUFFIX}")
    content = {
        "schema": earlier_schemas.SCHEMA,
        "run": {
            "experiment": folder.parent.name,
            "notebook": notebook,
            "started": datetime.now(UTC).isoformat(),
            "finished": None,
            **processes.own(),
            "commit": run_identity.commit(),
            "code": code(),
            "environment": environment_variables.to_record(os.environ),
        },
        "state": "running",
        "framework": {
            "name": framework,
            "kernel": kernel,
            "versions": {"python": sys.version.split()[0], **versions},
        },
        "hardware": hardware(),
        "devices": {
            "kind": devices.kind,
            "count": devices.count,
            "names": list(devices.names),
            **({"shared_gpus": devices.shared_gpus} if devices.shared_gpus else {}),
            **({"cpus": [cpu.as_record() for cpu in devices.cpus]} if devices.cpus else {}),
        },
        "recipe": recipe.as_record(),
        "skipped": [
            {"what": what, "reason": reason}
            for what, reason in skipped.items()
            if not what.endswith(_OTHER_KIND[devices.kind])
        ],
    }
    content = plain(content)
    check(content)
    return Run(folder, content, code)


def read(path: Path) -> dict[str, Any]:
    """The checked record at ``path`` (a file, or the run's folder).

    A record that says ``running`` although its process is gone is returned as ``interrupted``. If
    the process is on another host and its state is unknown, the reason says so. The file may be
    untrusted: its numbers are checked to be finite, and its texts to hold nothing but text.

    Raises:
        UserError: it is missing, is not JSON, or does not fit the schema.
    """
    path = Path(path)
    if path.is_dir():
        path = path / FILE
    if not path.exists():
        raise UserError(f"{path}: there is no record; run its notebook first")
    content = earlier_schemas.upgraded(strict_json.read(path))
    check(content, path)
    if content["state"] == "running" and not (alive := processes.runs(content["run"])):
        who = processes.named(content["run"])
        content["reason"] = f"{who}: this host cannot find out if it still runs"
        if alive is not None:
            content["state"] = "interrupted"
            content["reason"] = "the process was killed before the run was finished"
    return content


def check(content: Mapping[str, Any], where: Path | str = "record") -> None:
    """Hold ``content`` against the schema, and its figures against each other.

    Raises:
        UserError: naming the first field that does not fit, or a newer version of the schema.
    """
    schemas.check(SCHEMA_FILE, content, where)
    if (found := consistency.first(content)) is not None:
        raise UserError(f"{where}: field {found[0]} contradicts others: {found[1][:200]}")


def plain(value: Any) -> Any:
    """``value`` as JSON types: NumPy scalars and arrays unpacked, NaN as null, paths as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


def training(
    history: Sequence[Mapping[str, Any]], first_step_seconds: float, resumed_after: int = 0
) -> dict[str, Any]:
    """The record's section ``training``.

    The rate is that of one process: of a run that was resumed, of the last one, unless it trained
    no epoch any more.

    Args:
        history: the epochs' rows, as the schema's ``epochs``.
        first_step_seconds: with what the framework traces or tunes in it.
        resumed_after: the epochs that earlier processes trained.
    """
    own = history[resumed_after:] or history
    steady = own[1:] or own
    return {
        "seconds": sum(epoch["train_seconds"] + epoch["valid_seconds"] for epoch in history),
        "images_per_second": median(epoch["images_per_second"] for epoch in steady),
        "first_step_seconds": first_step_seconds,
        "train_images_seen": sum(epoch["images"] for epoch in history),
    }


def test(result: "Evaluation", loss: float, seconds: float) -> dict[str, Any]:
    """The record's section ``test``.

    Args:
        result: from ``helpers.training.metrics.evaluate``.
        loss: the mean over the test part's images.
        seconds: that the evaluation took.
    """
    return result.as_record() | {"loss": loss, "seconds": seconds}


def throughput(rates: Sequence[float], *, images: int) -> dict[str, Any]:
    """The sections ``files``, ``synthetic``, ``no_allreduce`` and ``loader``, from their rounds.

    Args:
        rates: images/s over all devices, a round each (``helpers.training.measurement_rounds``).
        images: that each round counted.
    """
    return {
        "images": images * len(rates),
        "seconds": sum(images / rate for rate in rates),
        "images_per_second": median(rates),
        "low": min(rates),
        "high": max(rates),
        "rounds": list(rates),
    }


def energy(summary: pd.DataFrame) -> dict[str, Any]:
    """The section ``energy``: joules of all GPUs while training, from ``Monitor.summary()``."""
    unknown = {"joules": None, "images_per_joule": None}
    gpus = summary[summary["device"] == "gpus"]
    training = gpus[gpus["phase"] == "train"]
    if gpus.empty:
        return unknown | {"reason": "no GPU was measured"}
    if training.empty:
        return unknown | {"reason": "an earlier process had trained every epoch"}
    figures = training.iloc[0]
    joules = float(figures["energy (J)"])
    if not joules > 0:
        return unknown | {"reason": "the GPUs report no energy, or one of them was lost"}
    # The monitor's own figure, because what it could not measure is in neither of its parts.
    per_joule = float(figures.get("items/J", figures["items"] / joules))
    return {"joules": joules, "images_per_joule": per_joule, "reason": None}


def memory(summary: pd.DataFrame, resident: int | None = None) -> dict[str, Any]:
    """The section ``memory``: the peak of the fullest device.

    Args:
        summary: ``Monitor.summary()``, which tells that of GPUs.
        resident: that of the fullest CPU device, in bytes: the most that its process held while it
            trained, divided by the devices of that process. None on GPUs.
    """
    if resident is not None:
        return {"peak_bytes": resident, "reason": None}
    gpus = summary[~summary["device"].isin(["gpus", "host"])]
    peaks = gpus.get("memory peak (MiB)", pd.Series(dtype=float)).dropna()
    if peaks.empty:
        return {"peak_bytes": None, "reason": "no GPU reported its memory"}
    return {"peak_bytes": round(float(peaks.max()) * 2**20), "reason": None}


def _watch_notebook_cells(run: Run) -> Callable[[], None]:
    """In a notebook, an error or interrupt in any cell goes into the record at once.

    Not on a rank, whose error may follow from another's: the runner writes down the earliest.
    Returns what stops that.
    """
    try:
        from IPython import get_ipython
    except ImportError:
        return _nothing
    shell = get_ipython()
    if shell is None or rank_info.here() is not None:
        return _nothing

    def after_cell(result: Any) -> None:
        error = result.error_before_exec or result.error_in_exec
        with suppress(UserError):  # the record is another run's: the next section says so
            if error is not None and run.content["state"] == "running":
                run.fail(error)
            elif error is None and run.content["state"] in ("failed", "interrupted"):
                run.content = {**run.content, "state": "running", "reason": None}
                run._write()

    def stop() -> None:
        with suppress(ValueError):  # it was stopped before
            shell.events.unregister("post_run_cell", after_cell)

    shell.events.register("post_run_cell", after_cell)
    return stop


def _nothing() -> None:
    """Outside a notebook there is nothing to stop."""
