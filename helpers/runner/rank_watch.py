"""Watch the ranks of a run: end the run once one has failed, hangs or gives no sign of life."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

from helpers.errors import refusal
from helpers.launch import failures, run_files
from helpers.launch.failures import RankError
from helpers.launch.run_files import ALIVE, BEAT_SECONDS, SILENT_SECONDS

LOG = "ranks.log"
"""The file in the run's folder with the output of the launcher and the ranks."""
HANG_MINUTES = 10.0
"""The time in which at least one rank has to make progress."""
CLOSING_SECONDS = 10.0
"""The time for ranks to end by themselves after their notebook."""
SETTLE_SECONDS = 0.4
"""The time for a parent process to record a death that another process noticed first."""
TROUBLED = 3
"""Consecutive signs of life that could not be written: the disk is full or not available."""


class Watch:
    """Check that all ranks make progress."""

    def __init__(
        self,
        folder: Path,
        launcher: str,
        ranks: int,
        process: subprocess.Popen[bytes],
        stall_minutes: float,
        join_seconds: float,
    ) -> None:
        self._folder, self._launcher, self._process = folder, launcher, process
        self._ranks = range(ranks)
        self._hang, self._join = 60 * min(HANG_MINUTES, stall_minutes), join_seconds
        self._joined: dict[int, Any] = {}
        self._began = self._quiet = self._looked = self._called = time.monotonic()
        self._stood = 0.0
        """Seconds for which this process stood still: Ctrl-Z, a machine that was paused."""
        self._states: dict[int, Any] = {}
        self._pulses: dict[int, tuple[Any, float]] = {}
        self._done_since: float | None = None
        self._trouble: OSError | None = None
        """Why no sign of life could be given."""

    def may_continue(self) -> bool:
        """Whether some rank still runs.

        Raises:
            RankError: one has failed, or hangs, or its host is gone.
        """
        now, ended = time.monotonic(), self._process.poll() is not None
        self._stood, self._called = max(self._stood, now - self._called), now
        if now - self._looked >= BEAT_SECONDS or ended:
            self._looked = now
            if len(self._done) == len(self._ranks):
                self._done_since = self._done_since or now
                return not ended and now - self._done_since < CLOSING_SECONDS
            self._check_causes(ended)
            self._check_joined(now)
            self._check_pulses(now)
            self._check_states(now)
        return True

    @property
    def _done(self) -> list[int]:
        """The ranks that have come to the notebook's end."""
        return [rank for rank in self._ranks if (self._folder / f"done-{rank}").exists()]

    def _check_causes(self, ended: bool) -> None:
        """Raise what ended a rank, or the launcher."""
        if failures.earliest(self._folder) is None and not ended and not self._trouble:
            return
        time.sleep(SETTLE_SECONDS)
        if (cause := failures.earliest(self._folder)) is not None:
            raise cause
        if self._trouble:
            raise RankError(f"the runner on {os.uname().nodename}: {refusal(self._trouble)}")
        if self._stood > SILENT_SECONDS / 2:  # of its signs of life, the last one may be older
            raise RankError(
                f"the runner on {os.uname().nodename}: it was stopped (Ctrl-Z, or a paused "
                f"machine) for {self._stood:.0f} s, so its ranks have ended themselves"
            )
        how, log = self._process.returncode, self._folder.parent / LOG
        raise RankError(f"{self._launcher} ended with exit code {how}: see {log}")

    def _check_joined(self, now: float) -> None:
        """Raise where not all have come in time."""
        missing = set(self._ranks) - set(self._joined)
        if missing:
            self._joined = self._of_each("joined")
            missing -= set(self._joined)
        if missing and now - self._began > self._join:
            raise RankError(
                f"{len(self._joined)} of {len(self._ranks)} ranks have joined after "
                f"{self._join:.0f} s; missing: rank {', '.join(map(str, sorted(missing)))}; see "
                f"{self._folder.parent / LOG}"
            )

    def _check_pulses(self, now: float) -> None:
        """Raise where the process above a rank is no longer heard: its whole host is gone."""
        for rank, pulse in self._of_each("pulse").items():
            if rank not in self._pulses or self._pulses[rank][0] != pulse:
                self._pulses[rank] = (pulse, now)
            elif now - self._pulses[rank][1] > SILENT_SECONDS:
                raise RankError(
                    f"rank {rank} on {self._hosts[rank]}: has not responded for "
                    f"{SILENT_SECONDS:.0f} s; its host is down or was suspended"
                )

    def _check_states(self, now: float) -> None:
        """Raise if no rank has made progress for a long time."""
        states = self._of_each("state")
        if states != self._states:
            self._states, self._quiet = states, now
        if self._hang and now - self._quiet > self._hang:
            where = failures.where(states, self._hosts, self._done)
            long = f"{self._hang / 60:.0f} min" if self._hang >= 120 else f"{self._hang:.0f} s"
            raise RankError(f"no step for {long}: {where}")

    @property
    def _hosts(self) -> list[str]:
        return [self._joined.get(rank, {}).get("host", "?") for rank in self._ranks]

    def _of_each(self, kind: str) -> dict[int, Any]:
        found = {rank: run_files.read(self._folder / f"{kind}-{rank}") for rank in self._ranks}
        return {rank: said for rank, said in found.items() if said is not None}

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Show the ranks every second that the runner still waits for them."""
        over = Event()

        def live() -> None:
            failed = 0
            for number in count(1):
                if over.wait(BEAT_SECONDS):
                    return
                try:
                    run_files.write(self._folder / ALIVE, number)
                    failed = 0
                except OSError as error:
                    failed += 1
                    if failed == TROUBLED:
                        self._trouble = error

        thread = Thread(target=live, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
