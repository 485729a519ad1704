"""A sign of life: every step a notebook takes touches a file, at most once a second.

The runner looks at it (``helpers.runner.run_experiment.stalls``), beside the other files of the
run.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

from helpers.launch import step_counter

VARIABLE = "ROSETTA_STEPS"
"""Environment variable with the file that a run's steps touch; a notebook run by hand has none."""
FILE = ".steps"
MOVING = ".progress"
"""Beside it: where the run is within an epoch. No sign of life, for it is written on a clock."""


class _Last:
    beat = -1.0


def beat() -> None:
    """A step was taken."""
    step_counter.step()
    file = os.environ.get(VARIABLE)
    now = time.monotonic()
    if file is None or now - _Last.beat < 1:
        return
    _Last.beat = now
    with suppress(OSError):  # a full disk is somebody else's to report
        Path(file).touch()


def watched() -> bool:
    """Whether a runner watches this process's run."""
    return VARIABLE in os.environ


def show(text: str) -> None:
    """As :func:`say`, of a line that is soon replaced, and that no log should have."""
    if watched():
        with suppress(OSError):
            Path(os.environ[VARIABLE]).with_name(MOVING).write_text(text, encoding="utf-8")


def say(text: str) -> None:
    """Let the runner show a line about how far the run is; without one nothing happens."""
    if watched():
        with suppress(OSError):
            Path(os.environ[VARIABLE]).write_text(text, encoding="utf-8")
