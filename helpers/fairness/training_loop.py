"""The training-loop check: compare the first steps of a notebook's loop with the reference.

Before it trains, a notebook lets its loop take a few steps on the reference's batch, in its own
precision. The network is shallow (``frameworks.*.shallow``): in the deep one, rounding would grow
from step to step and hide the differences that this check looks for.

Thresholds in float32: loss and statistics agree to 1e-5 (found: 5e-7; with an expected difference
of Adam 5e-6), the way the weights go to 2e-3 of its length (found: 1e-5, with Adam 4e-4). With
products of 16 bits they are wider, and still far below what a wrong loop does: a sum in place of a
mean is a way twice as long, BatchNorm's momentum of 0.99 for 0.9 moves the statistics by half.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from helpers.fairness import kept_statistics, reference
from helpers.fairness.check_results import Check
from helpers.fairness.kept_statistics import GLOBAL
from helpers.fairness.reference_checks import SINGLE, running_statistics, scale_in_words
from helpers.networks.weights import Arrays
from helpers.recipe import Rule
from helpers.recipe.settings import MULTILABEL


class Limits(NamedTuple):
    """Limits for the loss and the statistics, and for the ``way`` of the weights.

    Float32 weights hold a small step with few digits, and the least rounding makes Adam reverse a
    gradient near 0.
    """

    values: float
    way: float


LIMITS = {
    "fp32": Limits(SINGLE, 2e-3),
    "tf32": Limits(2e-3, 0.1),  # a mantissa of 10 bits, as fp16's
    "fp16": Limits(2e-3, 0.1),  # found: 2e-4, with Adam 0.03
    "bf16": Limits(1e-2, 0.2),  # found: 2e-3, with Adam 0.08
}

SGD, MOMENTUM, ADAM = Rule("sgd"), Rule("momentum", reference.MOMENTUM), Rule("adam")
RULES = {rule.name: rule for rule in (SGD, MOMENTUM, ADAM)}
IN_WORDS = {"sgd": "SGD", "momentum": "momentum", "adam": "Adam"}

DECAYS = {
    "in the gradient (coupled), of all weights, BatchNorm and biases too": reference.COUPLED,
    "apart from the gradient (decoupled)": reference.DECOUPLED,
    "in the gradient, but not of BatchNorm and biases": reference.WEIGHTS_ONLY,
    "there is none": "",
}
"""What weight decay there may be, and the reference's path with it; the first is PyTorch's. (By
plain gradient descent the first two are the same.)"""

RATE_APART, IN_GRADIENT = "momentum without the learning rate", "weight decay in the gradient"
"""What a framework's optimisers may lack, as its ``SKIPPED`` names it: then the way that they go
instead is an expected difference."""
OF_THEIR_OWN = {"momentum": reference.LATE, "adam": reference.EPSILON_FIRST}
"""The paths of such optimisers, by the rule; without decay."""


Share = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Trial:
    """The training that a notebook's loop has to do for the check, whatever its recipe.

    ``weights`` are those of ``framework.shallow``; a step at each of ``rates`` is to be taken by
    ``rule`` on the same ``shares``, each device's images and their targets.
    """

    weights: Arrays
    shares: tuple[Share, ...]
    rule: Rule
    rates: tuple[float, ...]

    @property
    def steps(self) -> int:
        return len(self.rates)


TrainingLoopCheck = Callable[[Trial], tuple[float, Mapping[str, np.ndarray], np.ndarray]]
"""Takes a trial's steps; their mean loss, the weights afterwards by canonical names, and the
logits (images, 14) that the notebook then validates with: each device those of its own share,
share after share."""


class _Loop(NamedTuple):
    """What is checked, and by what; the names are those of :func:`check_fairness`."""

    steps: TrainingLoopCheck
    devices: int
    limits: Limits
    task: str
    skipped: Mapping[str, str]


def check_fairness(
    check_training_loop: TrainingLoopCheck,
    *,
    devices: int,
    precision: str = "fp32",
    rule: Rule = ADAM,
    task: str = MULTILABEL,
    skipped: Mapping[str, str] = MappingProxyType({}),
) -> list[Check]:
    """Check the notebook's own training loop, on all its devices, in its own precision.

    It walks down the loss of its ``task``, by plain gradient descent, by the recipe's own ``rule``,
    and by that with weight decay where the recipe has some (of the reference's size).

    Every device is given the same batch: then any number of devices must walk the path of one,
    which is the reference's, and a sum in place of a mean shows as steps ``devices`` times as
    long. (Plain gradient descent shows it; Adam divides it away.)
    """
    loop = _Loop(check_training_loop, devices, LIMITS[precision], task, skipped)
    checks = _on_path(loop, SGD)
    own = replace(RULES[rule.name], weight_decay=0.0)
    if own != SGD:
        checks += _on_path(loop, own)
    if rule.weight_decay:
        decayed = replace(own, weight_decay=reference.DECAY)
        checks.append(_decay(loop, decayed))
    return checks + _statistics(loop)


def _walk(loop: _Loop, rule: Rule) -> tuple[float, Mapping[str, np.ndarray]]:
    """The mean loss of the loop's steps by ``rule``, and the weights after them."""
    shares = (reference.batch_of(loop.task),) * loop.devices
    trial = Trial(reference.shallow_arrays(), shares, rule, reference.RATES[rule.name])
    loss, after, _ = loop.steps(trial)
    return loss, after


def _on_path(loop: _Loop, rule: Rule) -> list[Check]:
    """The loop's first steps by ``rule`` against the reference's."""
    known, start = reference.paths(loop.task), reference.shallow_arrays()
    loss, after = _walk(loop, rule)
    taken = f"{reference.STEPS} {IN_WORDS[rule.name]} steps"
    there = {name: known[f"{rule.name} {name}"] for name in start}
    loss_error = abs(loss - float(known[f"{rule.name} losses"].mean()))
    change = _weight_change(loop, f"weight change after {taken}", rule.name, after)
    of_loss = Check(f"mean loss of {taken}", loss_error, loop.limits.values)
    if rule == MOMENTUM and RATE_APART in loop.skipped:
        rest = abs(loss - float(known[f"{reference.LATE} losses"].mean()))
        of_loss = _explained(of_loss, loop.skipped[RATE_APART], rest)
    checks = [of_loss, change]
    if rule != SGD:
        return checks
    norm = "features.norm0"
    norms = {norm: reference.KEPT["densenet121"].norms[norm]}
    return checks + running_statistics(
        after, there, start, reference.STEPS, loop.limits.values, f"after {taken}", norms
    )


def _weight_change(loop: _Loop, name: str, rule: str, after: Mapping[str, np.ndarray]) -> Check:
    """How far and in which direction the weights went, against the reference's way.

    Adam may also have taken the way of those who add epsilon before the bias correction: a known
    difference, as large as the two formulas make it. Momentum that has the rate in its velocity is
    named, and wrong, but where the framework has no other.
    """
    found, expected, limit = _way(after), _way_of(rule, loop.task), loop.limits.way
    said = scale_in_words(found, expected, limit, loop.devices)
    check = Check(name, reference.relative(found, expected), limit, said)
    if rule not in OF_THEIR_OWN:
        return check
    theirs = _way_of(OF_THEIR_OWN[rule], loop.task)
    rest = float(np.linalg.norm(found - theirs) / np.linalg.norm(expected))
    if rule == "adam":
        why = "adds epsilon before the bias correction; this predicts a difference of "
        return _explained(check, f"{why}{reference.relative(theirs, expected):.3g}", rest)
    why = "the velocity contains the learning rate, so the steps shrink late when the rate drops"
    explained = _explained(check, why, rest)
    return explained if RATE_APART in loop.skipped else replace(explained, rest=None)


def _explained(check: Check, why: str, rest: float) -> Check:
    """With the reason, if it predicts the difference: what is left is within the limit."""
    assert check.difference is not None and check.threshold is not None
    if not rest <= check.threshold < check.difference:
        return check
    return replace(check, reason=why, rest=rest)


def _decay(loop: _Loop, rule: Rule) -> Check:
    """Which weight decay the loop has: found by the path that it is nearest to."""
    found = _way(_walk(loop, rule)[1])
    candidates = {
        said: reference.relative(found, _way_of(f"{rule.name} {path}".strip(), loop.task))
        for said, path in DECAYS.items()
    }
    nearest = min(candidates, key=lambda said: candidates[said])  # of equal ones the first
    if not candidates[nearest] <= loop.limits.way:
        nearest = "not one of those that are known"
    name = f"weight decay in {reference.STEPS} {IN_WORDS[rule.name]} steps"
    check = Check(name, candidates[next(iter(DECAYS))], loop.limits.way, nearest)
    if IN_GRADIENT not in loop.skipped:
        return check
    own = OF_THEIR_OWN.get(rule.name, rule.name)
    rest = reference.relative(found, _way_of(f"{own} {reference.DECOUPLED}", loop.task))
    return _explained(check, loop.skipped[IN_GRADIENT], rest)


def _way(end: Mapping[str, np.ndarray], path: str = "") -> np.ndarray:
    """From where the weights came to ``end``, all in one vector."""
    start = reference.shallow_arrays()
    trained = [each for each in start if "running" not in each]
    return np.concatenate([(end[path + each] - start[each]).ravel() for each in trained])


def _way_of(path: str, task: str) -> np.ndarray:
    return _way(reference.paths(task), f"{path} ")


def _statistics(loop: _Loop) -> list[Check]:
    """A step for which each device has other images and labels.

    Whether its gradients are the mean over the devices (equal batches would not show that each
    trains alone), whose BatchNorm statistics are in the weights, and whether validation normalises
    with those on every device: what is saved and tested later must be what was validated.
    """
    grey, targets = reference.batch_of(loop.task)

    def other(by: int) -> np.ndarray:
        """Targets that give other gradients: those of other findings, or other classes."""
        return np.roll(targets, by, axis=1) if targets.ndim == 2 else (targets + by) % 14

    shares = tuple((grey // (1 + number), other(number)) for number in range(loop.devices))
    start = reference.shallow_arrays()
    _, after, logits = loop.steps(Trial(start, shares, SGD, (STEP,)))
    expected = reference.shallow_logits(after, np.concatenate([share for share, _ in shares]))
    validated = Check(
        "validated with the statistics that are saved",
        float(np.abs(logits - expected).max()),
        loop.limits.values,
    )
    grey_of_each, limit = [share for share, _ in shares], loop.limits.values
    survivor = kept_statistics.survivor(after, grey_of_each, limit)
    return [_together(after, shares, loop.limits), validated, survivor]


STEP = 0.1
"""The learning rate of that step."""
TOGETHER = "classifier after a step on different images"


def _together(after: Mapping[str, np.ndarray], shares: Sequence[Share], limits: Limits) -> Check:
    """Whether the classifier's weights went down the mean of all devices' gradients."""
    layer = "classifier.weight"
    found = after[layer] - reference.shallow_arrays()[layer]
    pixels, targets = zip(*shares, strict=True)
    count, each = len(shares), [reference.classifier_gradient(*share) for share in shares]
    own = np.mean(each, axis=0)
    difference = reference.relative(found, -STEP * own)
    together = reference.classifier_gradient(np.concatenate(pixels), np.concatenate(targets))
    rest = reference.relative(found, -STEP * together)
    if rest <= limits.way:
        return Check(TOGETHER, difference, limits.way, GLOBAL, rest)
    said = scale_in_words(found, -STEP * own, limits.way, count)
    if difference > limits.way:
        # If devices train alone, the weights are one device's or their average; each device may
        # have divided its gradient by all.
        alone = [own / count, *each, *(one / count for one in each)]
        if any(reference.relative(found, -STEP * one) <= limits.way for one in alone):
            said = "does each device train alone?"
        said = f"not the mean of all devices' gradients: {said}"
    return Check(TOGETHER, difference, limits.way, said)
