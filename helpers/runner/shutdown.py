"""Stop an experiment cleanly on Ctrl-C, SIGTERM, a closed terminal or SIGUSR1.

The first signal raises KeyboardInterrupt, with a line that names the signal. Later signals are
ignored, because they could interrupt the cleanup. During a run, the signal is only noted; the loop
that waits for the run acts on it (:func:`check`). Slurm sends SIGUSR1 before a time limit.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
    """The request to this process; there is one state, because signals go to the process."""

    by: signal.Signals | None = None
    raised = False
    held = 0


@contextmanager
def in_order() -> Iterator[None]:
    """Within this context, the first stop signal is obeyed, and all others are ignored.

    They stay ignored after the block, so that the command can still print how it ended. A signal
    that was ignored before, as under ``nohup``, stays ignored.
    """
    before = {n: signal.getsignal(n) for n in _SAID if signal.getsignal(n) is not signal.SIG_IGN}
    _Asked.by, _Asked.raised = None, False
    for number in before:
        signal.signal(number, _ask)
    try:
        yield
    finally:
        if _Asked.by is None:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """A signal that arrives inside is acted on by :func:`check`, or at the block's end."""
    _Asked.held += 1
    try:
        yield
    finally:
        _Asked.held -= 1
        if not _Asked.held:
            check()


def check() -> None:
    """Raise KeyboardInterrupt if a signal came; once."""
    if _Asked.by is not None and not _Asked.raised:
        _Asked.raised = True
        raise KeyboardInterrupt(_SAID[_Asked.by])


def by(number: signal.Signals) -> bool:
    """Whether this is the signal that came."""
    return _Asked.by == number


def _ask(number: int, frame: FrameType | None) -> None:
    _Asked.by = _Asked.by or signal.Signals(number)
    if not _Asked.held:
        check()
