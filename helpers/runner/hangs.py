"""Detect runs that make no progress, for example in a collective whose partner has ended.

Steps, sections of the record, checkpoints and cells' ends change files in the run's folder. A run
hangs if no file changes and nothing is printed for some minutes.
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from data_prep.errors import printable
from gpumon.trace_files import PHASES
from helpers.training.epoch_lines import FILE, MOVING

MINUTES = 30.0
"""The time without progress after which a run counts as hung."""
EVERY_SECONDS = 1.0
LONGEST = 200  # bytes of a line from a run


class Stalled(Exception):
    """A run was ended because it made no progress."""


class Watch:
    """Watch a run that writes into ``folder``: call :meth:`look` often while it runs.

    ``heard`` gets each line that the run says, and whether it is soon replaced.
    """

    def __init__(
        self,
        folder: Path,
        minutes: float,
        heard: Callable[[str, bool], None] = lambda text, moving: None,
    ) -> None:
        self._folder, self._minutes, self._heard = folder, minutes, heard
        self._said = {FILE: "", MOVING: ""}
        self._seen, self._looked, self._waited = self._changes(), time.monotonic(), 0.0

    def look(self) -> None:
        """Pass on what the run said last.

        Raises:
            Stalled: nothing has changed for too long.
        """
        now = time.monotonic()
        if now - self._looked < EVERY_SECONDS:
            return
        self.hear()
        # If much more time has passed, this process was stopped (Ctrl-Z, a paused container).
        self._waited += min(now - self._looked, 2 * EVERY_SECONDS)
        self._looked = now
        if (found := self._changes()) != self._seen:
            self._seen, self._waited = found, 0.0
        elif self._minutes and self._waited >= 60 * self._minutes:
            raise Stalled(
                f"stopped as hung: for {self._minutes:g} minutes no step, no output and no new "
                "section (--hang-timeout sets the minutes; 0 waits for ever)"
            )

    def hear(self) -> None:
        """Pass on the run's last message, unless it was passed on already."""
        for name, said in self._said.items():
            line = ""
            with suppress(OSError, UnicodeDecodeError), (self._folder / name).open("rb") as file:
                line = printable(file.read(LONGEST).decode().partition("\n")[0])
            if line not in ("", said):
                self._said[name] = line
                self._heard(line, name == MOVING)

    def close(self) -> None:
        """Remove the files that the watch reads: the run is over."""
        for name in self._said:
            (self._folder / name).unlink(missing_ok=True)

    def _changes(self) -> set[tuple[str, int]]:
        """When each file last changed, the log among them, but for what is written on a clock."""
        found = set[tuple[str, int]]()
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                sampled = entry.name.startswith("trace") and not entry.name.endswith(PHASES)
                if sampled or entry.name == MOVING:
                    continue
                with suppress(OSError):  # renamed meanwhile
                    if entry.is_file(follow_symlinks=False):
                        found.add((entry.name, entry.stat(follow_symlinks=False).st_mtime_ns))
        return found
