"""Signal that a training is alive: each step touches a file, which ``runner.hangs`` watches."""

import os
import time
from contextlib import suppress
from pathlib import Path

VARIABLE = "ROSETTA_STEPS"
"""Environment variable with the file that a run's steps touch; a notebook run by hand has none."""
FILE = ".steps"
MOVING = ".progress"
"""The run's position within an epoch. It is no sign of life, because a timer writes it."""


class _Last:
    beat = -1.0


def beat() -> None:
    """A step was taken; at most once a second the file is touched."""
    file = os.environ.get(VARIABLE)
    now = time.monotonic()
    if file is None or now - _Last.beat < 1:
        return
    _Last.beat = now
    with suppress(OSError):  # other code reports a full disk
        Path(file).touch()


def watched() -> bool:
    """Whether a runner watches this process's run."""
    return VARIABLE in os.environ


def say(text: str, name: str = "") -> None:
    """Let the runner show a line about the run's progress; without a runner, do nothing."""
    if watched():
        file = Path(os.environ[VARIABLE])
        with suppress(OSError):
            file.with_name(name or file.name).write_text(text, encoding="utf-8")
