"""The runs while they run: a table that stays in its place, or plain lines in a log.

The table needs a terminal that can move its cursor, and rich; everything else gets the lines,
which are never taken back, so that a log tells the same story.
"""

import re
import sys
import time
from collections import Counter
from types import TracebackType
from typing import Any

from helpers import overview, progress
from helpers.batches import Batch
from helpers.estimate import History, roughly, total
from helpers.plans import RunState

SETTLED = ("finished", "failed", "skipped", "interrupted")
_COLOURS = {"finished": "green", "failed": "red", "skipped": "yellow", "interrupted": "yellow"}
_AROUND = 10
"""Lines of the terminal that are not the table's rows."""


class Lines:
    """Plain lines: a title for each run, its sections as they are reached, its outcome."""

    def __init__(self, batch: Batch, history: History) -> None:
        self.batch, self.history = batch, history
        self._line: progress.Line | None = None

    def __enter__(self) -> "Lines":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def keep(self, state: RunState) -> None:
        """A run finished before."""
        print(f"{self._title(state)}: finished before, kept", flush=True)

    def begin(self, state: RunState) -> None:
        """A run's turn has come."""
        print(self._title(state), flush=True)
        self._line = progress.Line()
        self._line.__enter__()

    def show(self, text: str, detail: str = "") -> None:
        """Where the run is; ``detail`` is only shown where the line moves."""
        if self._line:
            self._line.show(text, detail)

    def warn(self, text: str) -> None:
        """Something the user should know at once; it stays on the screen."""
        print(f"      warning: {text}", file=sys.stderr, flush=True)

    def end(self, state: RunState) -> None:
        """The run is settled."""
        self._close()
        self.history.add(state)
        print(f"      {overview.outcome(state)}", flush=True)

    def _close(self) -> None:
        if self._line:
            self._line.__exit__()
            self._line = None

    def _title(self, state: RunState) -> str:
        return f"[{self.batch.runs.index(state) + 1}/{len(self.batch.runs)}] {state.title}"


class Table(Lines):
    """One table of all runs, drawn once a second: more would be felt by what is measured."""

    def __init__(self, batch: Batch, history: History, console: Any) -> None:
        from rich.live import Live

        super().__init__(batch, history)
        self._console = console
        self._now: RunState | None = None
        self._at = ""
        self._started = self._began = time.monotonic()
        self._figures: dict[str, tuple[str, str]] = {}
        self._live = Live(
            console=console, refresh_per_second=1, transient=True, get_renderable=self._draw
        )

    def __enter__(self) -> "Table":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def keep(self, state: RunState) -> None:
        self._figures[state.folder] = overview.figures(self.batch, state)

    def begin(self, state: RunState) -> None:
        self._now, self._at, self._began = state, "", time.monotonic()
        self._live.refresh()

    def show(self, text: str, detail: str = "") -> None:
        self._at = f"{text} ({detail})" if detail else text

    def warn(self, text: str) -> None:
        self._console.print(clean(f"warning: {text}"), style="yellow", markup=False)

    def end(self, state: RunState) -> None:
        self._now = None
        self.history.add(state)
        self._figures[state.folder] = overview.figures(self.batch, state)
        if state.reason:
            self._console.print(
                clean(f"{state.title}: {overview.outcome(state)}"), style="red", markup=False
            )
        self._live.refresh()

    def _draw(self) -> Any:
        from rich.table import Table as Grid
        from rich.text import Text

        runs = self.batch.runs
        varied = any(state.variant for state in runs)
        grid = Grid(box=None, pad_edge=False, caption=self._caption(), caption_justify="left")
        for name in ("Notebook", "Devices", *["Variant"] * varied, "State"):
            grid.add_column(name, no_wrap=True, overflow="ellipsis")
        for name in ("Time", "Estimate", "Test AUC", "Images/s"):
            grid.add_column(name, no_wrap=True, justify="right")
        first, last = window(len(runs), self._position(), max(3, self._console.height - _AROUND))
        if first:
            grid.add_row(f"... {first} above", style="dim")
        for state in runs[first:last]:
            auc, speed = self._figures.get(state.folder, ("", ""))
            apart = [state.variant.replace("-", " ")] * varied
            text, colour = self._state(state)
            cells = [state.notebook, str(state.devices), *apart]
            grid.add_row(
                *map(Text, map(clean, cells)),
                Text(clean(text), style=colour),
                *map(Text, (*self._times(state), auc, speed)),
            )
        if last < len(runs):
            grid.add_row(f"... {len(runs) - last} below", style="dim")
        return grid

    def _position(self) -> int:
        """The run that is on, else the first that has not had its turn."""
        runs = self.batch.runs
        if self._now is not None:
            return runs.index(self._now)
        waiting = (i for i, state in enumerate(runs) if state.state not in SETTLED)
        return next(waiting, len(runs) - 1)

    def _state(self, state: RunState) -> tuple[str, str]:
        if state is self._now:
            return self._at or "starting", "bold cyan"
        return state.state, _COLOURS.get(state.state, "dim")

    def _times(self, state: RunState) -> tuple[str, str]:
        guess = self.history.of(state)
        about = "" if guess is None else f"~{progress.clock(guess.seconds)}"
        if state is self._now:
            return progress.clock(time.monotonic() - self._began), about
        if state.state in SETTLED:
            return "" if state.seconds is None else progress.clock(state.seconds), ""
        return "", about

    def _caption(self) -> str:
        runs = self.batch.runs
        counts = Counter(state.state for state in runs)
        said = [f"{counts[name]} {name}" for name in SETTLED if counts[name]]
        waiting = [state for state in runs if state.state == "waiting" and state is not self._now]
        left, unknown = total(self.history, waiting)
        if self._now is not None:
            guess = self.history.of(self._now)
            unknown += guess is None
            left += max(0.0, guess.seconds - (time.monotonic() - self._began)) if guess else 0.0
        said.append(f"{progress.clock(time.monotonic() - self._started)} so far")
        if waiting or self._now is not None:
            more = f" and {unknown} run{'s' * (unknown != 1)} without estimate" if unknown else ""
            said.append(f"about {roughly(left)}{more} to go")
        return f"{len(runs)} runs: {', '.join(said)}"


def watching(batch: Batch, history: History) -> Lines:
    """The table where it can be shown, else the lines."""
    try:
        from rich.console import Console
    except ImportError:
        return Lines(batch, history)
    console = Console()
    if not sys.stdout.isatty() or not console.is_terminal or console.is_dumb_terminal:
        return Lines(batch, history)
    return Table(batch, history, console)


def window(count: int, position: int, rows: int) -> tuple[int, int]:
    """The first and one past the last of ``rows`` of ``count``, with ``position`` among them."""
    if count <= rows:
        return 0, count
    first = min(max(0, position - rows // 2), count - rows)
    return first, first + rows


def clean(text: str) -> str:
    """Without control characters, which a notebook's error may bring along."""
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x1f\x7f-\x9f]", "", text)
