"""Stop an experiment cleanly on Ctrl-C, SIGTERM, a closed terminal or SIGUSR1.

The first signal raises KeyboardInterrupt, with a line that names the signal. Later signals are
ignored, because they could interrupt the cleanup. A signal may also arrive inside a finaliser or
the callback of a weak reference, where Python prints the exception and continues. The exception is
then raised again a moment later.

SIGUSR1 asks for a stop at a checkpoint, as Slurm does before a time limit: the current run trains
until all its processes agree to stop, and writes a checkpoint. If that takes longer than
``PATIENCE_VARIABLE`` allows, or if a second SIGUSR1 arrives, the run is stopped as by Ctrl-C. In
both cases the exit code is 75, and the experiment can be resumed.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from helpers.errors import GO_ON, number_in

PATIENCE_VARIABLE = "ROSETTA_STOP_SECONDS"
"""Environment variable: how long a stop in order may take."""
PATIENCE_SECONDS = 120.0
AGAIN_SECONDS = 0.01
"""After which a KeyboardInterrupt that went unnoticed is raised again."""

_SAID = {
    signal.SIGINT: "stopped by Ctrl-C",
    signal.SIGTERM: "stopped by SIGTERM",
    signal.SIGHUP: "stopped by SIGHUP, as its terminal was closed",
}


class InOrder(KeyboardInterrupt):
    """The experiment was stopped in order: ``code`` is the command's exit code."""

    def __init__(self, said: str, code: int = GO_ON) -> None:
        super().__init__(said)
        self.code = code


class NodeGone(InOrder):
    """A job has lost a node, so no run on all of its nodes can continue until it has another."""


class _Asked:
    """The requests to this process; there is one state, because signals go to the process."""

    reason: str | None = None
    held = 0
    raised: KeyboardInterrupt | None = None
    wished = False
    """Whether a stop at a checkpoint was requested."""
    pass_on: Callable[[], None] | None = None


@contextmanager
def in_order() -> Iterator[None]:
    """Inside, the first signal that asks to stop is acted on, and all others are ignored.

    One that was ignored before, as ``nohup`` has it, stays ignored. Once one was acted on, the rest
    are ignored beyond the block too: the command is ending, and has yet to say so.
    """
    before = {n: signal.getsignal(n) for n in _SAID if signal.getsignal(n) is not signal.SIG_IGN}
    alarm, hook = signal.getsignal(signal.SIGALRM), sys.unraisablehook
    wishes = signal.getsignal(signal.SIGUSR1)
    seconds = patience()
    _Asked.reason, _Asked.raised, _Asked.wished = None, None, False
    signal.signal(signal.SIGUSR1, lambda number, frame: _wish(seconds))
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
        signal.signal(signal.SIGUSR1, signal.SIG_IGN if _Asked.wished else wishes)
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


@contextmanager
def passing_on(wish: Callable[[], None]) -> Iterator[None]:
    """Inside, ``wish`` is called once all is to stop in order; at once where that is so already."""
    _Asked.pass_on = wish
    try:
        if _Asked.wished:
            wish()
        yield
    finally:
        _Asked.pass_on = None


def wished() -> bool:
    """Whether all is to stop in order."""
    return _Asked.wished


def raised() -> KeyboardInterrupt | None:
    """The request to stop that was raised; it comes once, so no caller may drop it."""
    return _Asked.raised


def again(asked: KeyboardInterrupt, said: str) -> KeyboardInterrupt:
    """The same request with more to say."""
    return InOrder(said, asked.code) if isinstance(asked, InOrder) else KeyboardInterrupt(said)


def by_hand() -> bool:
    """Whether Ctrl-C was pressed, so that a user at the terminal can wait for the report."""
    return _Asked.reason == _SAID[signal.SIGINT]


def patience() -> float:
    """Seconds that a stop in order may take."""
    return number_in(PATIENCE_VARIABLE, PATIENCE_SECONDS, "seconds")


def _wish(seconds: float) -> None:
    if _Asked.wished:
        if _Asked.reason is None:
            _Asked.reason = "stopped, as a stop in order took too long"
        _act()
        return
    _Asked.wished = True
    if _Asked.pass_on is not None:
        _Asked.pass_on()
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.daemon = True
    timer.start()


def _ask(number: int, frame: FrameType | None) -> None:
    if _Asked.reason is None:
        _Asked.reason = _SAID[signal.Signals(number)]
    _act()


def _act() -> None:
    if _Asked.reason is not None and _Asked.raised is None and not _Asked.held:
        kind = InOrder if _Asked.wished else KeyboardInterrupt
        _Asked.raised = kind(_Asked.reason)
        raise _Asked.raised


def _raise_again(lost: Any) -> bool:
    """Whether what Python is about to print and forget is our request to stop; it comes again."""
    if _Asked.raised is None or lost.exc_value is not _Asked.raised:
        return False
    _Asked.raised = None
    signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
    return True
