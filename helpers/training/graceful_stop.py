"""Stop all processes of a run after the same step, which can be any step.

A scheduler warns a job that its time ends or that it loses its nodes. The runner then writes a
file, the *wish*, to the run's folder. If every process acted on it at once, some would take one
step more than others and wait for them for ever. So process 0 alone looks for the wish. It writes
the step up to which all may go to a second file. It raises that step long before any process
reaches it, until it has seen the wish. No data passes between devices for this: each process reads
a small file every few seconds.
"""

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.files import write_atomic
from helpers.errors import LoaderError, Stopped
from helpers.launch import exchange

WISH = ".stop"
"""File in the run's folder that asks the run to stop in order."""
LOOK_SECONDS = 0.5
AHEAD_SECONDS = 10.0
"""So far ahead all may go; a stop takes as long at most, and a step."""
WAIT_SECONDS = 0.02


def wish(folder: Path) -> None:
    """Ask the run in ``folder`` to stop in order; harmless where nothing runs."""
    with suppress(OSError):
        (folder / WISH).touch()


def check(folder: Path, where: str) -> None:
    """Between two parts of a run, which all of its ranks come to.

    Raises:
        Stopped: it is to stop.
    """
    if exchange.of_first((folder / WISH).exists()):
        raise Stopped(f"stopped as asked {where}")


@dataclass(frozen=True)
class Agreement:
    """What the processes of a run stop by: a file of its own for each training."""

    folder: Path
    token: str = field(default_factory=lambda: exchange.of_first(secrets.token_hex(4)))

    def of(self, rank: int, processes: int, first: int) -> "Permit":
        """A process's own view; ``first`` is the number of the first step to be taken."""
        return Permit(self.folder, self._path, rank, processes, first)

    def close(self) -> None:
        """All processes have ended: no sooner, for each has to read up to where it goes."""
        self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return self.folder / f".permit-{self.token}"


class Permit:
    """Up to which step this process may go; steps are counted through all epochs, from 0."""

    def __init__(self, folder: Path, path: Path, rank: int, processes: int, first: int) -> None:
        self._wish, self._path = folder / WISH, path
        self._rank, self._alone = rank, processes == 1
        self._first, self._began = first, time.monotonic()
        self._until = self._renew = first
        """All may take the steps before ``_until``; at ``_renew`` process 0 says so anew."""
        self._last = self.refused = False
        self.ended = ""
        """Why the loader cannot go on."""
        self._looked, self._wished = -LOOK_SECONDS, False

    def may_take(self, step: int) -> bool:
        """Whether that step is to be taken; waits until that is known."""
        if self._rank == 0:
            self._decide(step)
        else:
            while step >= self._until and not self._last:
                if not self._heard():
                    time.sleep(WAIT_SECONDS)
        self.refused = step >= self._until
        return not self.refused

    def _decide(self, step: int) -> None:
        if self._last or step < self._renew:
            return
        if self._is_wished():
            self._last = True
            if self._alone or step == self._first:  # no process has a limit yet
                self._until = step
        else:
            taken = step - self._first
            pace = taken / max(time.monotonic() - self._began, 1e-3)
            # A step that takes long leaves the others no time to hear: there are always two ahead.
            ahead = 1 if self._alone else max(2, int(pace * AHEAD_SECONDS))
            self._until, self._renew = step + ahead, step + max(1, ahead // 2)
        if not self._alone:
            said = json.dumps({"until": self._until, "last": self._last})
            write_atomic(self._path, said.encode())

    def _heard(self) -> bool:
        """Whether process 0 has said something new."""
        try:
            said: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return False
        before = self._until, self._last
        self._until, self._last = said["until"], said["last"]
        return before != (self._until, self._last)

    def _is_wished(self) -> bool:
        now = time.monotonic()
        if not self._wished and now - self._looked >= LOOK_SECONDS:
            self._looked, self._wished = now, self._wish.exists()
        return self._wished


def batches(loader: Any, permit: Permit, first: int, steps: int) -> Iterator[Any]:
    """A loader's batches, of ``steps`` steps from ``first`` on, as far as ``permit`` goes.

    Raises:
        LoaderError: the loader ends sooner.
    """
    step = first
    each = iter(loader)
    while permit.may_take(step):
        try:
            batch = next(each)
        except StopIteration:
            permit.ended = ended(step - first, steps)
            raise LoaderError(permit.ended) from None
        yield batch
        step += 1


def ended(given: int, steps: int) -> str:
    """Why a training whose loader has ended cannot continue."""
    return (
        f"the training loader gave {given} of {steps} batches; let make_train_loader give batches "
        "without end"
    )
