"""The loaders' benchmark: what is read, how it is timed, and what stands beside what."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from helpers import paths

sys.path.append(str(paths.ROOT / "benchmarks"))

import photos
import turns


def test_bare_decoding_decodes_every_file_and_nothing_twice_as_often() -> None:
    seen: list[int] = []
    before = threading.active_count()
    batches = photos.decoded(seen.append, range(20), workers=2, batch=8)
    assert list(islice(batches, 10)) == [8] * 10
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before, "no thread decodes on into the next load's turn"
    counts = [seen.count(image) for image in set(seen)]
    assert len(counts) == 20 and max(counts) - min(counts) <= 1


SPIN = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True); input()"


def test_processor_time_is_of_all_processes(tmp_path: Path) -> None:
    """Those that run, those that ended, and those that these have started."""
    import subprocess

    before = turns.processor_seconds()
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert turns.processor_seconds() - before > 0.4
        process.communicate(b"\n")
    assert turns.processor_seconds() - before > 0.4


def test_who_begins_changes_by_turns() -> None:
    order: list[str] = []

    def turn(name: str) -> Callable[[], tuple[float, float]]:
        def taken() -> tuple[float, float]:
            order.append(name)
            return len(order), -1.0

        return taken

    clock, processor = turns.by_turns({name: turn(name) for name in "abc"}, rounds=3)
    assert "".join(order) == "abcbcacab"
    assert clock == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}
    assert processor["b"] == [-1.0] * 3


def test_what_was_read_ahead_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each turn has a loader of its own, that is closed before the next begins."""
    asked: list[str] = []

    def loader(workers: int) -> Iterator[None]:
        asked.append(f"begun with {workers}")
        try:
            while True:
                asked.append("batch")
                yield
        finally:
            asked.append("closed")

    def timed(work: Any) -> tuple[float, float]:
        assert asked[-7:] == ["begun with 2", *["batch"] * 6]
        images = work()
        assert images == 5 * (len(asked) - asked.index("batch") - 6)
        asked.append("timed")
        return images, images

    monkeypatch.setattr(turns, "timed", timed)
    speeds, _ = turns.take_loaders_turns({"one": loader}, 2, 5, rounds=1, seconds=0.01)
    assert speeds["one"][0] > 0
    assert asked[-2:] == ["timed", "closed"]
