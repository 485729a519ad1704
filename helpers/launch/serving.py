"""On a rank: who answers the coordinator's calls, and how it tells something meanwhile."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import Any

from helpers import network
from helpers.frameworks import place
from helpers.launch import letters

Answerer = Callable[..., Any]
"""``(function, *args)`` of a call: what this rank answers."""
STATE_SECONDS = 1.0


class _Serving:
    answer: Answerer | None = None
    stop: Callable[[], None] = lambda: None
    told = 0
    steps = 0


def hand(answer: Answerer, stop: Callable[[], None] = lambda: None) -> None:
    """From now on ``answer`` answers the calls, and ``stop`` is called when no more will come."""
    _Serving.answer, _Serving.stop = answer, stop  # type: ignore[method-assign]


def handed() -> Answerer | None:
    """Who answers; None as long as nobody was handed."""
    return _Serving.answer


def tell(message: Any) -> None:
    """From rank 0 to whoever waits for the call's answer, and goes on waiting."""
    here = place.here()
    assert here is not None, "only a rank can tell its coordinator"
    letters.send(here.folder / f"told-{_Serving.told}", message)
    _Serving.told += 1


def step() -> None:
    """A step was taken: nothing hangs."""
    _Serving.steps += 1


def serve(folder: Path, rank: int) -> None:
    """Answer calls until the coordinator ends the run."""
    Thread(target=_say_where, args=(folder / f"state-{rank}",), daemon=True).start()
    number = 0
    while not (folder / "end").exists():
        try:
            function, args = letters.received(folder / f"call-{number}")
        except FileNotFoundError:
            time.sleep(0.02)
            continue
        _meet_anew(folder, rank, number)
        assert _Serving.answer is not None
        letters.send(folder / f"answer-{number}-{rank}", _Serving.answer(function, *args))
        number += 1
    _Serving.stop()


def _meet_anew(folder: Path, rank: int, number: int) -> None:
    """A port of its own for the process group of each call.

    PyTorch's store outlives the group that it was made for, by an unknown time. A second group at
    the same port could find the addresses of the first there.
    """
    path = folder / f"port-{number}"
    if rank == 0:
        letters.say(path, {"port": network.free_port()})
    while (said := letters.heard(path)) is None:
        time.sleep(0.01)
    os.environ["MASTER_PORT"] = str(said["port"])


def _say_where(path: Path) -> None:
    """Every second, how many steps were taken and where the main thread is, should it hang."""
    main = main_thread().ident
    while current_thread().is_alive():
        frame = sys._current_frames().get(main or 0)
        letters.say(path, {"steps": _Serving.steps, "where": _where(frame)})
        time.sleep(STATE_SECONDS)


def _where(frame: FrameType | None) -> str:
    """``all_reduce, distributed_c10d.py:2810``: the innermost frame."""
    if frame is None:
        return "nowhere"
    return f"{frame.f_code.co_name}, {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
