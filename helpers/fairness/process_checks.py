"""Fairness checks across a run's processes: membership, the images read, and the evaluation.

These checks need no reference, so they apply to custom networks too. Each process answers with the
output of its own loaders and its own loop (``helpers.training.notebook_check``), and this module
combines the answers. ``reference_checks`` compares the gradients of n devices with those of one,
and ``training_loop`` compares the steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from helpers.fairness import reference
from helpers.fairness.check_results import Check

JOINED = "processes and devices that joined"
ONCE = "each training image once an epoch"
EVALUATED = "each evaluated image once, in its place"
REPLICAS = "logits of all devices after training"
WEIGHTS = "weights of all processes after training"


@dataclass(frozen=True)
class Answer:
    """The report of one process on itself, on two epochs of training images and an evaluation."""

    rank: int
    devices: int
    host: str
    process: int
    last: float
    """The highest rank among those that it computes with, found by a collective."""
    epochs: tuple[np.ndarray, ...]
    """Numbers of the images that it read, as they came: of each epoch int64 (images,)."""
    even: np.ndarray
    """The same of an epoch of as many images as fill whole batches, int64 (images,)."""
    logits: np.ndarray
    """The logits of all evaluated images, (images, outputs)."""


def joined(answers: Sequence[Answer], processes: int, devices: int, hosts: int) -> Check:
    """Check that exactly the requested processes compute together."""
    ranks = [answer.rank for answer in answers]
    wrong = {
        f"{len(ranks)} of {processes} processes": abs(len(ranks) - processes),
        "not every rank once": processes - len(set(ranks) & set(range(processes))),
        "two ranks in one process": len(ranks) - len({(a.host, a.process) for a in answers}),
        "not all in one world": sum(answer.last != processes - 1 for answer in answers),
        "other devices": abs(sum(answer.devices for answer in answers) - devices),
        "other hosts": abs(len({answer.host for answer in answers}) - hosts),
    }
    names = [(processes, "process", "processes"), (devices, "device", "devices")]
    counted = [*names, (hosts, "host", "hosts")]
    who = ", ".join(f"{count} {one if count == 1 else more}" for count, one, more in counted)
    said = ", ".join(what for what, count in wrong.items() if count) or who
    return Check(JOINED, float(sum(wrong.values())), 0.0, said)


def each_once(answers: Sequence[Answer], images: int, used: int, even: int) -> Check:
    """Check that every image is read once an epoch, except those that fill no batch.

    An image that is always left out is noticed if all images fill whole batches.
    """
    worst, said = 0, f"{used} of {images}: {images - used} fill no batch and are dropped"
    if used == images:
        said = f"all {images}"
    said += f"; all {even} where {even} images fill whole batches"
    epochs = [
        (f"epoch {number}", epoch, images, used) for number, epoch in enumerate(_epochs(answers), 1)
    ]
    read = np.concatenate([answer.even for answer in answers])
    for name, epoch, total, wanted in (*epochs, ("an epoch of whole batches", read, even, even)):
        known = epoch[(epoch >= 0) & (epoch < total)]
        times = np.bincount(known, minlength=total)
        again, foreign = int((times - 1).clip(0).sum()), len(epoch) - len(known)
        short = abs(len(epoch) - wanted)
        if again + foreign + short > worst:
            worst = again + foreign + short
            never = int((times == 0).sum())
            said = f"{name}: {again} again, {never} of {total} never ({wanted} fill batches)"
            said += f", {foreign} others" if foreign else ""
    return Check(ONCE, float(worst), 0.0, said)


def evaluated(
    answers: Sequence[Answer],
    images: int,
    rows: np.ndarray,
    expected: np.ndarray,
    limit: float,
) -> Check:
    """Check that an evaluation counts every image once, and in its place.

    A padded, missing or exchanged image moves logits to other rows.
    """
    few = [answer.logits for answer in answers if len(answer.logits) != images]
    if few:
        return Check(EVALUATED, float("nan"), limit, f"{len(few[0])} scores of {images} images")
    errors = [np.abs(answer.logits[rows] - expected).max() for answer in answers]
    # np.max, because Python's max() loses a NaN
    return Check(EVALUATED, float(np.max(errors)), limit, f"{images} images")


def mean_loss(logits: np.ndarray, targets: np.ndarray) -> float:
    """The mean loss: of a softmax over images, or of sigmoids over images and findings.

    Args:
        logits: (images, outputs).
        targets: classes int64 (images,), or findings (images, outputs) of 0 and 1.
    """
    if targets.ndim == 1:
        highest = logits.max(axis=1)
        total = highest + np.log(np.exp(logits - highest[:, None]).sum(axis=1))
        return float((total - logits[np.arange(len(logits)), targets]).mean())
    return float((np.logaddexp(0, logits) - targets * logits).mean())


def after_training(
    digests: Sequence[str], logits: Sequence[np.ndarray], devices: int, limit: float
) -> list[Check]:
    """Check that all replicas have the same weights."""
    if devices == 1:
        return [Check(REPLICAS, None, None, "there is one device")]
    apart = [reference.relative(each, found[0]) for found in logits for each in found]
    checks = [Check(REPLICAS, float(np.max(apart)), limit)]
    if len(digests) > 1:
        others = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
        said = f"SHA-256 {digests[0][:12]} on all {len(digests)}"
        if others:
            said = f"not those of rank 0: rank {', '.join(map(str, others))}"
        checks.append(Check(WEIGHTS, float(len(others)), 0.0, said))
    return checks


def _epochs(answers: Sequence[Answer]) -> list[np.ndarray]:
    """The numbers that all processes read, for each epoch."""
    return [np.concatenate(parts) for parts in zip(*(a.epochs for a in answers), strict=True)]
