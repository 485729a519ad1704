"""Stop an experiment cleanly on Ctrl-C, SIGTERM, a closed terminal or SIGUSR1.

The first signal raises KeyboardInterrupt, with a line that names the signal. Later signals are
ignored, because they could interrupt the cleanup. A signal may also arrive inside a finaliser or
the callback of a weak reference, where Python prints the exception and continues. The exception is
then raised again a moment later.

SIGUSR1, which Slurm sends before a time limit, does the same. A command that it stopped ends with
the code of ``Stopped``.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

AGAIN_SECONDS = 0.01
"""After which a KeyboardInterrupt that went unnoticed is raised again."""

_SAID = {
    signal.SIGINT: "stopped by Ctrl-C",
    signal.SIGTERM: "stopped by SIGTERM",
    signal.SIGHUP: "stopped by SIGHUP, as its terminal was closed",
    signal.SIGUSR1: "stopped by SIGUSR1",
}


class Stopped(KeyboardInterrupt):
    """The experiment was stopped before a time limit: ``code`` is the command's exit code."""

    def __init__(self, said: str, code: int) -> None:
        super().__init__(said)
        self.code = code


class _Asked:
    """The requests to this process; there is one state, because signals go to the process."""

    reason: str | None = None
    held = 0
    raised: KeyboardInterrupt | None = None


@contextmanager
def in_order() -> Iterator[None]:
    """Inside, the first signal that asks to stop is acted on, and all others are ignored.

    A signal that was ignored before, as under ``nohup``, stays ignored. Once a signal was acted on,
    all others are ignored beyond the block too, so that the command can still print how it ended.
    """
    before = {n: signal.getsignal(n) for n in _SAID if signal.getsignal(n) is not signal.SIG_IGN}
    alarm, hook = signal.getsignal(signal.SIGALRM), sys.unraisablehook
    _Asked.reason, _Asked.raised = None, None
    signal.signal(signal.SIGALRM, lambda number, frame: _act())
    sys.unraisablehook = lambda lost: _raise_again(lost) or hook(lost)
    for number in before:
        signal.signal(number, _ask)
    try:
        yield
    finally:
        if _Asked.reason is None:
            for number, handler in before.items():
                signal.signal(number, handler)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
        sys.unraisablehook = hook


@contextmanager
def held() -> Iterator[None]:
    """A signal that arrives inside is acted on when the block has come to its end."""
    _Asked.held += 1
    try:
        yield
    finally:
        _Asked.held -= 1
        _act()


def raised() -> KeyboardInterrupt | None:
    """The request to stop that was raised; it comes once, so no caller may drop it."""
    return _Asked.raised


def by_hand() -> bool:
    """Whether Ctrl-C was pressed, so that a user at the terminal can wait for the report."""
    return _Asked.reason == _SAID[signal.SIGINT]


def by_slurm() -> bool:
    """Whether SIGUSR1 came, as before a job's time limit."""
    return _Asked.reason == _SAID[signal.SIGUSR1]


def _ask(number: int, frame: FrameType | None) -> None:
    if _Asked.reason is None:
        _Asked.reason = _SAID[signal.Signals(number)]
    _act()


def _act() -> None:
    if _Asked.reason is not None and _Asked.raised is None and not _Asked.held:
        _Asked.raised = KeyboardInterrupt(_Asked.reason)
        raise _Asked.raised


def _raise_again(lost: Any) -> bool:
    """Whether what Python is about to print and forget is our request to stop; it comes again."""
    if _Asked.raised is None or lost.exc_value is not _Asked.raised:
        return False
    _Asked.raised = None
    signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
    return True
