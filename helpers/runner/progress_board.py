"""Show the progress of the runs: a table on a terminal, or plain lines in a log.

The table needs rich and a terminal that can move its cursor. Any other output gets plain lines,
which are never rewritten, so a log has the same information.
"""

import sys
import time
from collections import Counter
from contextlib import suppress
from typing import Any

from data_prep.errors import printable
from helpers import terminal
from helpers.errors import naming
from helpers.record.tasks import capital
from helpers.runner import messages, recipes
from helpers.runner.estimate import History, total
from helpers.runner.experiments import Experiment
from helpers.runner.plans import RunState, counted
from helpers.terminal import say

SETTLED = ("finished", "failed", "skipped", "interrupted")
_COLOURS = {"finished": "green", "failed": "red", "skipped": "yellow", "interrupted": "yellow"}
_AROUND = 8
"""Lines of the terminal that are not the table's rows."""


class Lines:
    """Plain lines: a title for each run, its sections as they are reached, its outcome."""

    def __init__(self, experiment: Experiment, history: History) -> None:
        self.batch, self.history = experiment, history
        self._line: terminal.Line | None = None

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def keep(self, state: RunState) -> None:
        """A run finished before."""
        say(f"{self._title(state)}: finished before, kept")

    def note(self, text: str) -> None:
        """What is done before the first run."""
        say(text)

    def begin(self, state: RunState) -> None:
        """A run's turn has come."""
        say(self._title(state))
        self._line = terminal.Line()
        self._line.__enter__()

    def show(self, text: str, detail: str = "") -> None:
        """Where the run is; ``detail`` is only shown where the line moves."""
        if self._line:
            self._line.show(text, detail)

    def tell(self, line: str, moving: bool = False) -> None:
        """What the run says of itself, an epoch's figures. From a thread, as :meth:`warn`.

        Where it is within an epoch, which is soon replaced, is for a terminal alone.
        """
        with suppress(OSError):
            if not moving or self._moves():
                self.show(line)

    def warn(self, text: str) -> None:
        """Something the user should know at once; it stays on the screen.

        Also from a thread, which can do nothing about a terminal that is gone.
        """
        with suppress(OSError):
            self._warn(text)

    def _moves(self) -> bool:
        """Whether what is shown can be replaced."""
        return self._line is not None and self._line.moves

    def _warn(self, text: str) -> None:
        say(f"      warning: {text}", error=True)

    def end(self, state: RunState) -> None:
        """The run is settled."""
        self._close()
        self.history.add(state)
        said = messages.outcome(state)
        if state.state == "finished":
            measured, speed = messages.figures(self.batch, state)
            metric = recipes.task(self.batch.plan).metric.short
            said += f": {speed} images/s, test {metric} {measured}"
            said = "; ".join(filter(None, (said, messages.disturbed(self.batch, state))))
        say(f"      {said}")

    def _close(self) -> None:
        if self._line:
            self._line.__exit__()
            self._line = None

    def _title(self, state: RunState) -> str:
        return f"[{self.batch.runs.index(state) + 1}/{len(self.batch.runs)}] {state.title}"


class Table(Lines):
    """One table of all runs, drawn once a second: more would be felt by what is measured."""

    def __init__(self, experiment: Experiment, history: History, console: Any) -> None:
        from rich.live import Live

        super().__init__(experiment, history)
        self._console = console
        self._now: RunState | None = None
        self._at = ""
        self._started = self._began = time.monotonic()
        self._figures: dict[str, tuple[str, str]] = {}
        self._metric = capital(recipes.task(experiment.plan).metric.short)
        self._live = Live(
            console=console, auto_refresh=False, transient=True, get_renderable=self._draw
        )
        self._ticker = terminal.EverySecond(self._refresh)

    def __enter__(self) -> "Table":
        with naming("standard output"):
            self._live.start()
        self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ticker.stop()
        with suppress(OSError):  # the terminal is gone, and the table with it
            self._live.stop()

    def keep(self, state: RunState) -> None:
        self._figures[state.folder] = messages.figures(self.batch, state)

    def note(self, text: str) -> None:
        self._at = text.strip()
        self._refresh()

    def begin(self, state: RunState) -> None:
        self._now, self._at, self._began = state, "", time.monotonic()
        self._refresh()

    def show(self, text: str, detail: str = "") -> None:
        self._at = f"{text} ({detail})" if detail else text

    def _moves(self) -> bool:
        return True

    def _warn(self, text: str) -> None:
        self._console.print(printable(f"warning: {text}"), style="yellow", markup=False)

    def end(self, state: RunState) -> None:
        self._now, self._at = None, ""
        self.history.add(state)
        self._figures[state.folder] = messages.figures(self.batch, state)
        if state.reason:
            line = printable(f"{state.title}: {messages.outcome(state)}")
            with naming("standard output"):
                self._console.print(line, style="red", markup=False)
        elif disturbed := messages.disturbed(self.batch, state):
            self.warn(f"{state.title}: {disturbed}")
        self._refresh()

    def _refresh(self) -> None:
        with naming("standard output"):
            self._live.refresh()

    def _draw(self) -> Any:
        from rich.console import Group
        from rich.table import Table as Grid
        from rich.text import Text

        runs = self.batch.runs
        first, last = window(len(runs), self._position(), max(3, self._console.height - _AROUND))
        shown = [self._cells(state) for state in runs[first:last]]
        header = ["Notebook", "Devices", "Variant", "State", "Time", self._metric, "Images/s"]
        used = [i for i, name in enumerate(header) if name != "Variant" or any(r[i] for r in shown)]
        grid = Grid(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for i in used:
            # The notebook's name alone is cut where the terminal is narrow.
            width = None if i == 0 else max(len(row[i]) for row in [header, *shown])
            side: Any = "right" if i > 3 else "left"
            how: Any = {"no_wrap": True, "overflow": "ellipsis", "min_width": width or 8}
            grid.add_column(header[i], justify=side, **how)
        for state, row in zip(runs[first:last], shown, strict=True):
            colour = "bold cyan" if state is self._now else _COLOURS.get(state.state, "dim")
            grid.add_row(*(Text(row[i], style=colour if i == 3 else "") for i in used))
        above = f"... {first} more above" if first else ""
        below = f"... {len(runs) - last} more below" if last < len(runs) else ""
        one_line: Any = {"no_wrap": True, "overflow": "ellipsis"}
        parts: list[Any] = [
            Text(above, style="dim"),
            grid,
            Text(below, style="dim"),
            Text(self._caption(), **one_line),
            Text(printable(self._at), style="cyan", **one_line),
        ]
        return Group(*filter(None, parts))

    def _cells(self, state: RunState) -> list[str]:
        name = state.label.replace("_MultiGPU", "").replace("_", " ").replace("-", " ")
        variant = state.variant.replace("-", " ")
        said = "running" if state is self._now else state.state
        measured, speed = self._figures.get(state.folder, ("", ""))
        cells = [name, state.on, variant, said, self._time(state), measured, speed]
        return [printable(cell) for cell in cells]

    def _position(self) -> int:
        """The run that is on, else the first that has not had its turn."""
        runs = self.batch.runs
        if self._now is not None:
            return runs.index(self._now)
        waiting = (i for i, state in enumerate(runs) if state.state not in SETTLED)
        return next(waiting, len(runs) - 1)

    def _time(self, state: RunState) -> str:
        """What it took; before that what it may take, with a tilde."""
        guess = self.history.of(state)
        about = "" if guess is None else f"~{terminal.clock(guess.seconds)}"
        if state is self._now:
            spent = terminal.clock(time.monotonic() - self._began)
            return f"{spent} of {about}" if about else spent
        if state.state in SETTLED:
            return "" if state.seconds is None else terminal.clock(state.seconds)
        return about

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
        said.append(f"{terminal.clock(time.monotonic() - self._started)} so far")
        if waiting or self._now is not None:
            known = f"about {terminal.clock(left)}" if left or not unknown else ""
            open_end = f"{counted(unknown, 'run')} without estimate" if unknown else ""
            said.append(" and ".join(filter(None, (known, open_end))) + " to go")
        return f"{len(runs)} runs: {', '.join(said)}"


def watching(experiment: Experiment, history: History) -> Lines:
    """The table where it can be shown, else the lines."""
    try:
        from rich.console import Console
    except ImportError:
        return Lines(experiment, history)
    console = Console()
    if not sys.stdout.isatty() or not console.is_terminal or console.is_dumb_terminal:
        return Lines(experiment, history)
    return Table(experiment, history, console)


def window(count: int, position: int, rows: int) -> tuple[int, int]:
    """The first and one past the last of ``rows`` of ``count``, with ``position`` among them."""
    if count <= rows:
        return 0, count
    first = min(max(0, position - rows // 2), count - rows)
    return first, first + rows
