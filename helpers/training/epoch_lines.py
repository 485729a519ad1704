"""Show the progress of a training: a line per finished epoch, and a moving line within one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from helpers import terminal
from helpers.recipe import ScaledRecipe
from helpers.record import tasks
from helpers.training import heartbeat


class Within(NamedTuple):
    """How far training is: steps of all epochs, and seconds since this epoch's loop began."""

    steps: int
    seconds: float


class EpochLines:
    """The lines that a run prints while it trains, in the notebook or in a terminal.

    Raises:
        UserError: the images do not fill one global batch.
    """

    def __init__(self, recipe: ScaledRecipe, images: int, task: str) -> None:
        self.epochs, self.steps = recipe.recipe.epochs, recipe.steps(images)
        self._task = tasks.TASKS[task]
        self._moving = 0  # characters of a line that the next one replaces
        self.begin(0)

    def begin(self, epoch: int) -> None:
        """Training begins now, after this number of epochs."""
        self._printed = self._epoch = epoch
        self._since = time.monotonic()

    def heard(self, row: Mapping[str, Any] | Within) -> None:
        """An epoch has ended, or is under way."""
        if isinstance(row, Within):
            self._show_within(row)
            return
        done = row["epoch"] - self._epoch
        left = (self.epochs - row["epoch"]) * (time.monotonic() - self._since) / done
        line = (
            f"Epoch {row['epoch']} of {self.epochs}: loss {row['train_loss']:.4f}, validation loss "
            f"{row['valid_loss']:.4f}, {self._task.said(row)}, "
            f"{row['images_per_second']:,.0f} images/s"
        )
        line += f", {terminal.clock(left)} left" if left else ""
        self._printed = row["epoch"]
        print(self._over_the_moving(line), flush=True)
        heartbeat.say(line)

    def _show_within(self, now: Within) -> None:
        """A line that the next one replaces; in a batch the runner shows it."""
        done, step = divmod(now.steps, self.steps)
        taken = now.steps - self._epoch * self.steps
        if done > self._printed and step == 0:
            line = f"Epoch {done} of {self.epochs}: validation"
        elif taken > 0:
            pace = (time.monotonic() - self._since) / taken
            left = terminal.clock((self.epochs * self.steps - now.steps) * pace)
            line = f"Epoch {done + 1} of {self.epochs}: step {step} of {self.steps}, {left} left"
        else:
            waited = f"compiling, or in the first step, for {now.seconds:.0f} s"
            line = f"Epoch {done + 1} of {self.epochs}: {waited}"
        if heartbeat.watched():
            heartbeat.say(line, heartbeat.MOVING)
        else:
            print(self._over_the_moving(line), end="", flush=True)
            self._moving = len(line)

    def _over_the_moving(self, line: str) -> str:
        """The line as it takes the place of the moving one, if there is one."""
        width, self._moving = self._moving, 0
        return f"\r{line:<{width}}" if width else line
