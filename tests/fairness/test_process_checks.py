"""The world's rows: one fault each, and every limit held just above and just below."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers.fairness import process_checks
from helpers.fairness.check_results import Check
from helpers.fairness.process_checks import Answer

IMAGES, USED, RANKS = 103, 100, 2
RANDOM = np.random.default_rng(0)
LOGITS = RANDOM.normal(size=(7, 3))
TARGETS = (RANDOM.random((7, 3)) < 0.4).astype(np.float64)
NONE = np.zeros(0, np.int64)


def epoch(seed: int, rank: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(IMAGES)[:USED][rank::RANKS]


def answer(rank: int, **changes: Any) -> Answer:
    epochs = (epoch(1, rank), epoch(2, rank))
    even = np.arange(USED)[rank::RANKS]
    sound = Answer(rank, 1, "host", 100 + rank, RANKS - 1.0, epochs, even, LOGITS)
    return replace(sound, **changes)


ANSWERS = [answer(rank) for rank in range(RANKS)]


def joined(answers: list[Answer], hosts: int = 1) -> Check:
    return process_checks.joined(answers, RANKS, RANKS, hosts)


def test_all_joined() -> None:
    said = "2 processes, 2 devices, 1 host"
    assert joined(ANSWERS) == Check(process_checks.JOINED, 0.0, 0.0, said)
    alone = [answer(0, last=0.0)]
    assert process_checks.joined(alone, 1, 1, 1).reason == "1 process, 1 device, 1 host"
    apart = [answer(0), answer(1, host="other", process=100)]
    assert joined(apart, hosts=2).verdict == "pass"
    assert joined(ANSWERS, hosts=2).reason == "other hosts"
    assert joined(list(reversed(ANSWERS))).verdict == "pass"


@pytest.mark.parametrize(
    ("answers", "wrong", "said"),
    [
        (ANSWERS[:1], 3, "1 of 2 processes, not every rank once, other devices"),
        ([*ANSWERS, answer(2)], 2, "3 of 2 processes, other devices"),
        ([answer(0), answer(0, process=7)], 1, "not every rank once"),
        ([answer(0), answer(1, process=100)], 1, "two ranks in one process"),
        ([answer(0, last=0.0), answer(1, last=1.0)], 1, "not all in one world"),
        ([answer(0, last=2.0), answer(1, last=2.0)], 2, "not all in one world"),
        ([answer(0), answer(1, last=float("nan"))], 1, "not all in one world"),
        ([answer(0), answer(1, devices=2)], 1, "other devices"),
        ([answer(0), answer(1, host="other")], 1, "other hosts"),
    ],
)
def test_who_is_missing_or_too_many_is_told(answers: Any, wrong: int, said: str) -> None:
    assert joined(answers) == Check(process_checks.JOINED, float(wrong), 0.0, said)
    assert joined(answers).verdict == "fail"


def each_once(*epochs: tuple[np.ndarray, np.ndarray], used: int = USED) -> Check:
    """The check of two ranks, each of which gives what it read in two epochs."""
    answers = [answer(rank, epochs=both) for rank, both in enumerate(epochs)]
    return process_checks.each_once(answers, IMAGES, used, USED)


def test_each_image_once_and_the_remainder_is_named() -> None:
    found = process_checks.each_once(ANSWERS, IMAGES, USED, USED)
    assert found == Check(
        "each training image once an epoch",
        0.0,
        0.0,
        "100 of 103: 3 fill no batch and are dropped; all 100 where 100 images fill whole batches",
    )
    whole = tuple(np.random.default_rng(seed).permutation(IMAGES) for seed in (1, 2))
    found = each_once((whole[0], whole[1]), (NONE, NONE), used=IMAGES)
    assert found.reason == "all 103; all 100 where 100 images fill whole batches"


@pytest.mark.parametrize("number", [5, 1, -1, USED])
def test_an_image_that_is_always_left_out_fails(number: int) -> None:
    """Where some images are dropped each time, one that never comes is not missed."""
    first, second = ANSWERS
    even = np.where(second.even == 3, number, second.even)
    found = process_checks.each_once([first, replace(second, even=even)], IMAGES, USED, USED)
    assert (found.verdict, found.difference) == ("fail", 1.0)
    again = number in (5, 1)
    said = f"an epoch of whole batches: {int(again)} again, 1 of 100 never (100 fill batches)"
    assert found.reason == (said if again else f"{said}, 1 others")
    fewer = replace(second, even=second.even[1:])
    assert process_checks.each_once([first, fewer], IMAGES, USED, USED).verdict == "fail"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (int(epoch(2, 0)[5]), "epoch 2: 1 again, 4 of 103 never (100 fill batches)"),
        (-1, ", 1 others"),
        (IMAGES, ", 1 others"),
    ],
)
def test_one_image_twice_or_of_elsewhere_fails(number: int, said: str) -> None:
    second = np.where(np.arange(USED // 2) == 0, number, epoch(2, 1))
    found = each_once(ANSWERS[0].epochs, (epoch(1, 1), second))  # type: ignore[arg-type]
    assert (found.verdict, found.difference) == ("fail", 1.0)
    assert str(found.reason).endswith(said)


def test_without_sharding_all_is_read_twice() -> None:
    every = tuple(np.random.default_rng(seed).permutation(IMAGES)[:50] for seed in (1, 2))
    found = each_once(every, every)  # type: ignore[arg-type]
    assert (found.verdict, found.difference) == ("fail", 50.0)
    assert found.reason == "epoch 1: 50 again, 53 of 103 never (100 fill batches)"


LIMIT = 1e-5
ROWS = np.array([0, 3, 6])


def evaluated(second: Answer) -> Check:
    return process_checks.evaluated([answer(0), second], len(LOGITS), ROWS, LOGITS[ROWS], LIMIT)


def test_a_sound_evaluation_passes() -> None:
    assert evaluated(answer(1)) == Check(
        "each evaluated image once, in its place", 0.0, LIMIT, "7 images"
    )


@pytest.mark.parametrize(("by", "verdict"), [(0.8, "pass"), (1.25, "fail"), (np.nan, "fail")])
@pytest.mark.parametrize("sign", [-1, 1])
def test_logits_at_their_limit(by: float, verdict: str, sign: int) -> None:
    """The second process is moved; what the first one found is sound."""
    moved = LOGITS.copy()
    moved[3, 1] += sign * by * LIMIT
    assert evaluated(answer(1, logits=moved)).verdict == verdict


def test_the_mean_loss_is_that_of_the_definitions() -> None:
    sigmoid = 1 / (1 + np.exp(-LOGITS))
    entropy = -np.where(TARGETS == 1, np.log(sigmoid), np.log(1 - sigmoid))
    assert process_checks.mean_loss(LOGITS, TARGETS) == pytest.approx(entropy.mean(), abs=1e-12)
    classes = np.arange(7) % 3
    softmax = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    expected = -np.log(softmax[np.arange(7), classes]).mean()
    for shift in (0, 1000):  # large ones do not overflow
        found = process_checks.mean_loss(LOGITS + shift, classes)
        assert found == pytest.approx(expected, abs=1e-10)


EACH = np.stack([LOGITS] * 2)


def test_equal_replicas_pass() -> None:
    same = process_checks.after_training(["abc" * 20] * 2, [EACH] * 2, 2, LIMIT)
    assert same == [
        Check("logits of all devices after training", 0.0, LIMIT),
        Check("weights of all processes after training", 0.0, 0.0, "SHA-256 abcabcabcabc on all 2"),
    ]
    in_one_process = process_checks.after_training(["abc"], [EACH], 2, LIMIT)
    assert [check.check for check in in_one_process] == ["logits of all devices after training"]
    assert process_checks.after_training(["abc"], [EACH[:1]], 1, LIMIT) == [
        Check(process_checks.REPLICAS, None, None, "there is one device")
    ]


@pytest.mark.parametrize(("by", "verdict"), [(0.8, "pass"), (1.25, "fail"), (np.nan, "fail")])
@pytest.mark.parametrize("seen_by", [0, 1])
def test_another_device_at_its_limit(by: float, verdict: str, seen_by: int) -> None:
    other = EACH.copy()
    other[1] *= 1 + by * LIMIT
    logits = [EACH, EACH]
    logits[seen_by] = other
    first, second = process_checks.after_training(["a", "a"], logits, 2, LIMIT)
    assert (first.verdict, second.verdict) == (verdict, "pass")


def test_a_rank_with_other_weights_is_named() -> None:
    digests = ["a", "b", "a", "c"]
    row = process_checks.after_training(digests, [EACH] * 4, 4, LIMIT)[1]
    assert (row.difference, row.threshold, row.verdict) == (2.0, 0.0, "fail")
    assert row.reason == "not those of rank 0: rank 1, 3"
