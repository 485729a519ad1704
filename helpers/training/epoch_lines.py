"""Show how far a training is, in its notebook or to the runner, which watches it for hangs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers import terminal
from helpers.record import tasks

if TYPE_CHECKING:
    from helpers.training.notebook_recipe import NotebookRecipe

VARIABLE = "ROSETTA_STEPS"
"""Environment variable with the file that a run's steps touch; a notebook run by hand has none."""
FILE = ".steps"
MOVING = ".progress"
"""The run's position within an epoch."""


def beat() -> None:
    """A step was taken."""
    with suppress(OSError):  # other code reports a full disk
        if watched():
            Path(os.environ[VARIABLE]).touch()


def watched() -> bool:
    """Whether a runner watches this process's run."""
    return VARIABLE in os.environ


def say(text: str, name: str = "") -> None:
    """Let the runner show a line about the run's progress; without a runner, do nothing."""
    if watched():
        file = Path(os.environ[VARIABLE])
        with suppress(OSError):
            file.with_name(name or file.name).write_text(text, encoding="utf-8")


class EpochLines:
    """The lines that a run prints while it trains, from now on and after ``epoch`` epochs."""

    def __init__(self, recipe: NotebookRecipe, epoch: int) -> None:
        self.epochs, self.steps = recipe.epochs, recipe.steps
        self._task = tasks.TASKS[recipe.task]
        self._moving = 0  # characters of a line that the next one replaces
        self._printed = self._epoch = epoch
        self._since = time.monotonic()

    def heard(self, row: Mapping[str, Any] | int) -> None:
        """An epoch has ended, or so many steps of all epochs are done."""
        if isinstance(row, int):
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
        self._print(line)
        say(line)

    def _show_within(self, steps: int) -> None:
        """A line that the next one replaces; in a batch the runner shows it."""
        done, step = divmod(steps, self.steps)
        line = f"Epoch {done + 1} of {self.epochs}: first step"
        if done > self._printed and step == 0:
            line = f"Epoch {done} of {self.epochs}: validation"
        elif taken := steps - self._epoch * self.steps:
            pace = (time.monotonic() - self._since) / taken
            left = terminal.clock((self.epochs * self.steps - steps) * pace)
            line = f"Epoch {done + 1} of {self.epochs}: step {step} of {self.steps}, {left} left"
        if watched():
            say(line, MOVING)
        else:
            self._print(line, end="")

    def _print(self, line: str, end: str = "\n") -> None:
        """In the place of the moving line, if there is one; without an ``end`` it is the next."""
        print(f"\r{line:<{self._moving}}" if self._moving else line, end=end, flush=True)
        self._moving = 0 if end else len(line)
