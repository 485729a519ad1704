"""Show the progress of the runs: bars on a terminal, or plain lines in a log or a pipe."""

import sys
import time
from contextlib import suppress
from typing import Any

from data_prep.errors import printable
from helpers import terminal
from helpers.errors import STDOUT, naming
from helpers.runner import messages
from helpers.runner.experiments import Experiment
from helpers.runner.plans import PlannedRun


class Board:
    """A title for each run, its sections as they are reached, its outcome.

    On a terminal, two bars, for the experiment and the run, are below the permanent lines.
    """

    def __init__(self, experiment: Experiment) -> None:
        from rich import progress  # in the lab's environment alone
        from rich.console import Console

        self._experiment = experiment
        self._began, self._last = time.monotonic(), ""
        console = Console(soft_wrap=True)
        self._live = sys.stdout.isatty() and console.is_terminal and not console.is_dumb_terminal
        self._bars = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(30),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            console=console,
            refresh_per_second=1,  # more would be felt by what is measured
            transient=True,
            disable=not self._live,
        )
        self._all = self._bars.add_task("All runs", total=len(experiment.runs))
        self._one: Any = None

    def __enter__(self) -> "Board":
        with naming(STDOUT):
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal is gone, and the bars with it
            self._bars.stop()

    def note(self, text: str) -> None:
        """A line that stays."""
        if not self._live:
            return terminal.say(text)
        with naming(STDOUT):
            self._bars.console.print(printable(text), markup=False, highlight=False)

    def warn(self, text: str) -> None:
        """Something the user should know at once; it stays on the screen."""
        text = f"      warning: {text}"
        self.note(text) if self._live else terminal.say(text, error=True)

    def keep(self, run: PlannedRun) -> None:
        """A run finished before."""
        self.note(f"{self._title(run)}: finished before, kept")
        self._bars.advance(self._all)

    def begin(self, run: PlannedRun) -> None:
        """A run begins."""
        self._began, self._last = time.monotonic(), ""
        self.note(self._title(run))
        self._one = self._bars.add_task("", total=None)

    def show(self, text: str) -> None:
        """Show the current section of the run."""
        if self._one is not None:
            self._bars.update(self._one, description=printable(text))
        if not self._live and text != self._last:
            self._last = text
            self.note(f"      {terminal.clock(time.monotonic() - self._began)}  {text}")

    def reached(self, section: str, cell: int, cells: int) -> None:
        """Note that the run has reached a cell."""
        self.show(section or "introduction")
        if self._one is not None:
            self._bars.update(self._one, total=cells, completed=cell - 1)

    def tell(self, line: str, moving: bool) -> None:
        """Show a message of the run: an epoch's results, or a temporary line.

        The latter is for a terminal alone.
        """
        if self._live and not moving:
            self.note(f"      {line}")
        elif self._live or not moving:
            self.show(line)

    def end(self, run: PlannedRun) -> None:
        """The run is settled."""
        if self._one is not None:
            self._bars.remove_task(self._one)
        self._bars.advance(self._all)
        seconds = time.monotonic() - self._began
        self.note(f"      {messages.outcome(self._experiment, run, seconds)}")

    def _title(self, run: PlannedRun) -> str:
        runs = self._experiment.runs
        return f"[{runs.index(run) + 1}/{len(runs)}] {run.title}"
