"""Detect runs that make no progress, for example in a collective whose partner has ended.

Every training step touches a file in the run's folder, at most once a second. A cell's output, its
end, a section of the record and a checkpoint change other files. The runner checks when any of
these files last changed.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from data_prep.errors import printable
from gpumon.trace_files import MARKS
from helpers.training.heartbeat import FILE, MOVING

MINUTES = 60.0
"""The time without progress after which a run counts as hung. The longest step that changes no
file is an evaluation of all the NIH's test images on CPUs."""
EVERY_SECONDS = 5.0
LONGEST = 200
"""The maximum length of a line from a run, in bytes."""


class Stalled(Exception):
    """A run was ended because it made no progress."""


class Watch:
    """``with Watch(folder, minutes, end) as watch:`` around a run that writes into ``folder``.

    A thread calls ``end`` after so many minutes without a change to any file of the folder (0:
    never), and ``heard`` with each line that the run says (``heartbeat.say``), and whether it is
    soon replaced (``heartbeat.show``).
    """

    def __init__(
        self,
        folder: Path,
        minutes: float,
        end: Callable[[], None],
        heard: Callable[[str, bool], None] = lambda text, moving: None,
    ) -> None:
        self._folder, self._minutes, self._end, self._heard = folder, minutes, end, heard
        self._said, self._hearing = {FILE: "", MOVING: ""}, threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, daemon=True)
        self.error: Stalled | None = None
        """Why ``end`` was called, if it was."""

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        for name in self._said:
            (self._folder / name).unlink(missing_ok=True)

    def _keep_looking(self) -> None:
        every = min(EVERY_SECONDS, 6 * self._minutes or EVERY_SECONDS)
        seen, looked, waited = self._changes(), time.monotonic(), 0.0
        while not self._over.wait(every):
            self.hear()
            now, before, looked = self._changes(), looked, time.monotonic()
            # If much more time has passed, this process was stopped (Ctrl-Z, a paused container).
            waited += min(looked - before, 2 * every)
            if now != seen:
                seen, waited = now, 0.0
            elif self._minutes and waited >= 60 * self._minutes:
                self.error = Stalled(
                    f"stopped as hung: for {self._minutes:g} minutes no step, no output and no new "
                    "section (--hang-timeout sets the minutes; 0 waits for ever)"
                )
                self._end()
                return

    def hear(self) -> None:
        """Pass on what the run said last, unless that was done; from any thread.

        Called before anything later is shown, so that an epoch's line stands before what follows.
        """
        with self._hearing:
            for name, said in self._said.items():
                if (line := self._line(name)) not in ("", said):
                    self._said[name] = line
                    self._heard(line, name == MOVING)

    def _line(self, name: str) -> str:
        """What the run said last, in one line that a terminal can be given."""
        with suppress(OSError, UnicodeDecodeError), (self._folder / name).open("rb") as file:
            return printable(file.read(LONGEST).decode().partition("\n")[0])
        return ""

    def _changes(self) -> set[tuple[str, int]]:
        """When each file last changed: compared, never subtracted, for clocks are set.

        Not what is written on a clock, and so while a run hangs: the monitor's samples.
        """
        found = set()
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                sampled = entry.name.startswith("trace") and not entry.name.endswith(MARKS)
                if sampled or entry.name == MOVING:
                    continue
                with suppress(OSError):  # renamed meanwhile
                    if entry.is_file(follow_symlinks=False):
                        found.add((entry.name, entry.stat(follow_symlinks=False).st_mtime_ns))
        return found
