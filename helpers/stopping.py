"""Ctrl-C, SIGTERM and a closed terminal end a batch alike: in order, and once.

The first of them raises KeyboardInterrupt, with a line that says which it was. All that follow are
ignored: they could only leave what is being stopped half stopped.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SAID = {
    signal.SIGINT: "stopped by Ctrl-C",
    signal.SIGTERM: "stopped by SIGTERM",
    signal.SIGHUP: "stopped by SIGHUP, as its terminal was closed",
}


class _Asked:
    """What this process was asked; signals are the process's, so there is one of these."""

    reason: str | None = None
    held = 0
    raised = False


@contextmanager
def in_order() -> Iterator[None]:
    """Inside, the first signal that asks to stop is acted on, and all others are ignored.

    One that was ignored before, as ``nohup`` has it, stays ignored.
    """
    before = {n: signal.getsignal(n) for n in _SAID if signal.getsignal(n) is not signal.SIG_IGN}
    _Asked.reason, _Asked.raised = None, False
    for number in before:
        signal.signal(number, _ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """A signal that arrives inside is acted on when the block has come to its end."""
    _Asked.held += 1
    try:
        yield
    finally:
        _Asked.held -= 1
        _act()


def _ask(number: int, frame: FrameType | None) -> None:
    if _Asked.reason is None:
        _Asked.reason = _SAID[signal.Signals(number)]
    _act()


def _act() -> None:
    if _Asked.reason is not None and not _Asked.raised and not _Asked.held:
        _Asked.raised = True
        raise KeyboardInterrupt(_Asked.reason)
