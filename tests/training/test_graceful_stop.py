"""Processes that agree on a stop take equally many steps; a part of an epoch adds up."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.training import epoch_lines, graceful_stop
from helpers.training.epoch_lines import EpochLines
from helpers.training.graceful_stop import Agreement, Stopped
from helpers.training.partial_epoch import NONE, Part


def walk(folder: Path, delays: list[float], wish_at: int, most: int = 400) -> list[int]:
    """How many steps each of several processes takes, here threads of different speed.

    They keep step as an all-reduce makes them, but one may have begun a step before others end it.
    """
    agreement, taken = Agreement(folder), [0] * len(delays)
    first = 5
    together = threading.Barrier(len(delays))

    def process(rank: int) -> None:
        permit = agreement.of(rank, len(delays), first)
        for _ in graceful_stop.batches(iter(range(most)), permit, first, most):
            taken[rank] += 1
            time.sleep(delays[rank])
            if rank == 0 and taken[0] == wish_at:
                graceful_stop.wish(folder)
            together.wait(60)

    threads = [threading.Thread(target=process, args=(n,), daemon=True) for n in range(len(delays))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), f"it waits for ever, after {taken} steps"
    agreement.close()
    return taken


@pytest.mark.parametrize("delays", [[0.002], [0.002, 0.0], [0.0, 0.004, 0.001]])
def test_all_stop_after_the_same_step(
    delays: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graceful_stop, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(graceful_stop, "AHEAD_SECONDS", 0.05)
    taken = walk(tmp_path, delays, wish_at=30)
    assert len(set(taken)) == 1 and 30 <= taken[0] < 300, taken
    assert [path.name for path in tmp_path.iterdir()] == [graceful_stop.WISH]


def test_who_is_asked_before_the_first_step_takes_none(tmp_path: Path) -> None:
    graceful_stop.wish(tmp_path)
    assert walk(tmp_path, [0.0, 0.0], wish_at=-1) == [0, 0]
    with pytest.raises(Stopped, match="stopped as asked before its training"):
        graceful_stop.check(tmp_path, "before its training")


def test_none_stops_unasked(tmp_path: Path) -> None:
    graceful_stop.check(tmp_path, "anywhere")
    agreement = Agreement(tmp_path)
    permits = [agreement.of(rank, 2, 0) for rank in range(2)]
    assert all(permit.may_take(step) for step in range(50) for permit in permits)


def test_who_is_stopped_says_how_far_it_is_and_how_long_the_rest_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which is the time to ask for: of the steps that are left, at the pace of its own."""
    recipe: Any = SimpleNamespace(recipe=SimpleNamespace(epochs=10), steps=lambda count: 10)
    seconds = 0.0
    monkeypatch.setattr(epoch_lines, "time", SimpleNamespace(monotonic=lambda: seconds))

    def said(begun: tuple[int, int], epoch: int, step: int) -> str:
        nonlocal seconds
        lines = EpochLines(recipe, 100, "multilabel")
        seconds = 0.0
        lines.begin(*begun)
        seconds = 3000.0
        return lines.how_far(epoch, step)

    whole = "stopped as asked after epoch 2 of 10 and 5 of 10 steps; the rest of its training takes"
    assert said((0, 0), 2, 5) == f"{whole} about 2:30:00 at this pace"
    # 10 steps in 50 minutes, and 75 are left.
    assert said((1, 5), 2, 5) == f"{whole} about 6:15:00 at this pace"
    assert said((2, 5), 2, 5) == f"{whole.partition(';')[0]}, where it had begun"
    assert "stopped as asked after epoch 3 of 10; the rest" in said((0, 0), 3, 0)


def test_parts_of_an_epoch_add_up() -> None:
    first, second = Part(2, 1.0, 10.0, 1.0, 1), Part(6, 3.0, 20.0, 0.5, 1)
    assert NONE.plus(first) == first
    assert first.plus(second) == Part(8, 2.5, 30.0, 1.5, 2)
