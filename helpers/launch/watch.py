"""Above each rank a watcher: nothing of a run outlives the run.

The process that an engine starts forks a watcher, and that forks the rank, which leads a process
group of its own. The watcher sees how the rank ends and writes it down, with what signal; it ends
the rank and all that the rank has forked when the coordinator says so, when the coordinator is
gone, or when the engine has killed the process it knows. It does so from outside: a rank that
hangs in native code could not end itself.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from helpers.launch import letters

ALIVE = "alive"
"""The coordinator's sign of life: a number that grows every second."""
END, KILL = "end", "kill"
"""The coordinator asks the ranks to end; the watchers to end them."""
BEAT_SECONDS = 1.0
LOOK_SECONDS = 0.1
SILENT_SECONDS = 8.0
"""Without the other side's sign of life it is taken for gone."""
_PR_SET_PDEATHSIG = 1


def under_watch(folder: Path, rank: int, host: str, main: Callable[[], int]) -> int:
    """Run ``main`` in a process of its own, watched; the exit status of the rank.

    Call it before anything starts a thread.
    """
    engine = os.getpid()
    watcher = os.fork()
    if watcher == 0:
        _never_return(lambda: _watch(folder, rank, host, engine, main))
    for number in (signal.SIGTERM, signal.SIGINT):  # the watcher sees that we are gone
        signal.signal(number, lambda *_: os._exit(143))
    return os.waitstatus_to_exitcode(os.waitpid(watcher, 0)[1])


def _watch(folder: Path, rank: int, host: str, engine: int, main: Callable[[], int]) -> int:
    os.setsid()  # a signal to all that the engine started is not for us: we have to tidy up
    process = os.fork()
    if process == 0:
        os.setpgid(0, 0)
        _die_with_the_parent()
        _never_return(main)
    with suppress(OSError):  # whoever is first
        os.setpgid(process, process)
    asked: list[str] = []  # why we ended it
    Thread(target=_look, args=(folder, rank, engine, process, asked), daemon=True).start()
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status and not asked and folder.is_dir():
        with suppress(OSError):
            said = {"rank": rank, "host": host, "status": status}
            letters.say_last(folder / f"died-{rank}", said)
    _kill(process)
    return status if status >= 0 else 128 - status


def _look(folder: Path, rank: int, engine: int, process: int, asked: list[str]) -> None:
    """End the rank once nobody waits for it any more."""
    seen, since, pulse, beaten = b"", time.monotonic(), 0, -BEAT_SECONDS
    while True:
        now = time.monotonic()
        if now - beaten >= BEAT_SECONDS:
            beaten, pulse = now, pulse + 1
            with suppress(OSError):
                letters.say(folder / f"pulse-{rank}", {"pulse": pulse})
            alive = _read(folder / ALIVE)
            if alive != seen:
                seen, since = alive, now
        if (folder / KILL).exists():
            asked.append("the coordinator said so")
        elif now - since > SILENT_SECONDS or not folder.is_dir():
            asked.append("the coordinator is gone")
        elif os.getppid() != engine:
            asked.append("the engine ended us")
        if asked:
            _kill(process)
            return
        time.sleep(LOOK_SECONDS)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _kill(process: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def _die_with_the_parent() -> None:
    with suppress(OSError, AttributeError):  # Linux alone can
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _never_return(main: Callable[[], int]) -> None:
    """What a forked process does, whatever happens in it: it must not go on as its parent."""
    status = 1
    try:
        status = main()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)
