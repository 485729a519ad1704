"""Write the record of a run while it trains.

An interrupted run records its interruption. A killed run cannot, so readers of the record check
whether its process still exists.
"""

import atexit
import json
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from helpers.errors import UserError, in_a_line
from helpers.frameworks import rank_info
from helpers.frameworks.devices import Devices, hardware
from helpers.recipe import ScaledRecipe
from helpers.record import processes, run_identity, this_notebook
from helpers.record.file import FILE, check, plain, write
from helpers.record.types import SCHEMA


class Run:
    """A run's record while it is written. Make one with :func:`start`.

    The first of several ranks writes the run's record; the others keep theirs in memory.
    ``code`` gives the digest of the code that has run by now.
    """

    def __init__(self, folder: Path, content: dict[str, Any], code: Callable[[], str]) -> None:
        self.folder, self.content, self._code = folder, content, code
        here = rank_info.here()
        self._kept = here is None or here.rank == 0
        if self._kept:
            write(folder, content)
            atexit.register(self._left)
        self._stop_watching = _watch_notebook_cells(self)

    @property
    def id(self) -> str:
        """A name of this run alone, which its weights and its checkpoint carry too."""
        return str(self.content["run"]["id"])

    def add(self, section: str, value: Any) -> None:
        """Put ``value`` under ``section`` and write the record."""
        self._write(self.content | {"run": self._run(), section: plain(value)})

    def remove(self, *sections: str) -> None:
        """Take out sections that hold no longer; a run that was finished is not, then."""
        if self.content.keys() & set(sections):
            changed = self.content | {"state": "running", "reason": None}
            changed["run"] = self.content["run"] | {"finished": None}
            self._write({name: value for name, value in changed.items() if name not in sections})

    def close(self) -> None:
        """This process has begun another run: whatever happens now does not belong to this one."""
        self._stop_watching()
        atexit.unregister(self._left)
        self._left("another run was begun before the run was finished")

    def finish(self) -> Path:
        """The run is whole. Returns the record's path."""
        self._end("finished", None)
        return self.folder / FILE

    def fail(self, error: BaseException) -> None:
        """Record the end of the run by ``error``: interrupted if it was stopped, or failed."""
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        self._end("interrupted" if stopped else "failed", in_a_line(error))

    def _end(self, state: str, reason: str | None) -> None:
        run = self._run() | {"finished": datetime.now(UTC).isoformat()}
        self._write(self.content | {"state": state, "reason": reason, "run": run})

    def _run(self) -> dict[str, Any]:
        return self.content["run"] | {"code": self._code()}

    def _left(self, why: str = "the process ended before the run was finished") -> None:
        if self.content["state"] == "running" and self.content["run"]["process"] == os.getpid():
            with suppress(UserError):
                self._end("interrupted", why)

    def _write(self, changed: dict[str, Any]) -> None:
        """Raises UserError where it does not fit, or another run has begun in the folder."""
        if self._kept:  # what is of all ranks the first alone has
            check(changed)
        self.content = changed
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


def start(
    folder: Path,
    *,
    notebook: Path,
    framework: str,
    kernel: str,
    versions: Mapping[str, str],
    devices: Devices,
    recipe: ScaledRecipe,
) -> Run:
    """Begin the record of a run in ``folder``; an older record there is replaced."""
    code = run_identity.follow(notebook)
    about: dict[str, Any] = {"notebook": notebook.stem, "id": secrets.token_hex(8)}
    about |= {"started": datetime.now(UTC).isoformat(), "finished": None, **processes.own()}
    about |= {"commit": run_identity.commit(), "code": code()}
    on: dict[str, Any] = {"kind": devices.kind, "count": devices.count, "names": devices.names}
    if devices.cpus:
        on["cpus"] = [asdict(cpu) for cpu in devices.cpus]
    content = {
        "schema": SCHEMA,
        "run": about,
        "state": "running",
        "framework": {
            "name": framework,
            "kernel": kernel,
            "versions": {"python": sys.version.split()[0], **versions},
        },
        "hardware": hardware(),
        "devices": on,
        "recipe": recipe.as_record(),
    }
    found = plain(content)
    check(found)
    return Run(folder, found, code)


def _watch_notebook_cells(run: Run) -> Callable[[], None]:
    """In a notebook, an error or interrupt in any cell goes into the record at once.

    Not on a rank, whose error may follow from another's: the runner writes down the earliest.
    Returns what stops that.
    """
    shell = this_notebook.shell()
    if shell is None or rank_info.here() is not None:
        return lambda: None

    def after_cell(result: Any) -> None:
        error, state = result.error_before_exec or result.error_in_exec, run.content["state"]
        with suppress(UserError):  # the record is another run's: the next section says so
            if error is None and state in ("failed", "interrupted"):
                run._write(run.content | {"state": "running", "reason": None})
            elif error is not None and state == "running":
                run.fail(error)

    shell.events.register("post_run_cell", after_cell)
    return partial(shell.events.unregister, "post_run_cell", after_cell)
