"""The fairness check's limits on a real network: an error above one fails only its row.

Runs in the pytorch environment. The faults are in the reference, or in what PyTorch found: a
network cannot be made wrong by exactly so much. Rows without a network: ``test_helpers_fairness``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from notebook_cells import failed
from torchvision.models import densenet121

from helpers.fairness import reference, reference_checks
from helpers.fairness.check_results import Check
from helpers.fairness.reference_checks import AVERAGE_OF_AVERAGES
from helpers.frameworks import pytorch as framework

ONE = framework.list_devices("cpu", 1)
EXACT, SINGLE, STATISTICS = 1e-10, 1e-5, 1e-6
"""The limits, written out: those of the fairness check may not move unnoticed."""
BELOW, ABOVE = 0.8, 1.25
"""A fault's size as a part of the limit; rounding is a ten-thousandth of it."""
EVEN, UNEVEN = "gradients, n devices / one", "gradients, uneven batch, n devices / one"
AVERAGED = "as long as expected: a mean, not a sum"


def build_model(arrays: Mapping[str, np.ndarray]) -> Any:
    model = densenet121(weights=None, num_classes=14)
    framework.load_weights(model, arrays)
    return model


@pytest.fixture(scope="module")
def network() -> Any:
    return framework.exact(build_model, reference.arrays())


ANSWERS: dict[Any, Any] = {}


@pytest.fixture(autouse=True)
def asked_once(monkeypatch: pytest.MonkeyPatch, network: Any) -> None:
    """What the big network answers takes seconds, and is the same whatever fault is planted."""

    def remembering(ask: Callable[..., Any]) -> Callable[..., Any]:
        def remembered(model: Any, *given: Any) -> Any:
            if model is not network:
                return ask(model, *given)
            question = ask.__name__, *(np.asarray(array).tobytes() for array in given[:2])
            if question not in ANSWERS:
                ANSWERS[question] = ask(model, *given)
            return ANSWERS[question]

        return remembered

    for name in ("logits", "gradients", "train_forward"):
        monkeypatch.setattr(framework, name, remembering(getattr(framework, name)))


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> Callable[[Mapping[str, float]], None]:
    """A function that moves quantities of the reference: logits and loss by so much, others in
    proportion."""
    known = reference.load()

    def move(by: Mapping[str, float]) -> None:
        changed = dict(known)
        for name, much in by.items():
            changed[name] = known[name].astype(np.float64)
            if "logits" in name:
                changed[name][2, 5] += much
            elif name == "loss":
                changed[name] = changed[name] + much
            else:
                changed[name] *= 1 + much
        monkeypatch.setattr(reference, "load", lambda network: changed)

    return move


NETWORK = {
    "logits": "logits, evaluation",
    "loss": "loss",
    "features.conv0.weight": "gradient of features.conv0",
    "features.norm5.weight": "gradient of features.norm5",
    "classifier.weight": "gradient of classifier",
}


TRAINING = {
    "train logits": "logits, training",
    "features.norm0.running_mean": "running mean after a step",
    "features.norm5.running_mean": "running mean after a step",
    "features.norm0.running_var": "running variance after a step",
    "features.norm5.running_var": "running variance after a step",
}


ROWS = NETWORK | TRAINING
LIMITS = {name: STATISTICS if "running" in name else EXACT for name in ROWS}


@pytest.fixture
def checks(network: Any) -> Callable[[], list[Check]]:
    return lambda: [
        *reference_checks.same_network(framework, network, ONE),
        *reference_checks.same_in_training(framework, build_model, network),
    ]


def test_faults_just_below_their_limits_pass(moved: Any, checks: Any) -> None:
    moved({quantity: BELOW * LIMITS[quantity] for quantity in ROWS})
    found = [(check.check, check.verdict, check.reason) for check in checks()]
    assert found == [(row, "pass", None) for row in dict.fromkeys(ROWS.values())]


@pytest.mark.parametrize("quantity", ROWS)
def test_a_fault_just_above_a_limit_fails_its_row(quantity: str, moved: Any, checks: Any) -> None:
    moved({quantity: ABOVE * LIMITS[quantity]})
    assert failed(checks()) == {ROWS[quantity]}


def test_where_training_is_in_float32_alone_the_limits_are_wider_and_that_is_said(
    moved: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the notebook's own model is tried: the float64 one is not touched."""
    monkeypatch.setattr(framework, "SKIPPED", {"training in float64": "no such training here"})
    single = build_model(reference.arrays())

    def build(arrays: Mapping[str, np.ndarray]) -> Any:
        assert arrays is reference.arrays()
        return single

    checks = reference_checks.same_in_training(framework, build, None)
    assert failed(checks) == set()
    assert checks[0].reason == "no such training here"
    assert {check.threshold for check in checks} == {SINGLE}
    rounding = max(check.difference or 0.0 for check in checks)
    assert STATISTICS < rounding < 0.75 * SINGLE  # 0.54 on one thread of an AMD EPYC
    for quantity, row in TRAINING.items():
        moved({quantity: 2 * SINGLE})
        assert failed(reference_checks.same_in_training(framework, build, None)) == {row}


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[int, int]]]:
    """A function that has PyTorch's gradients over several devices averaged without processes.

    Its arguments: how to weigh the devices' shares, and by how much the whole is wrong, by the
    number of images. It returns the list of calls: images and devices.
    """
    alone = framework.gradients

    def have(*, by_images: bool = False, by: Mapping[int, float] | None = None) -> Any:
        calls = []

        def gradients(model: Any, images: Any, targets: Any, on: Sequence[Any]) -> Any:
            calls.append((len(images), len(on)))
            if len(on) == 1:
                return alone(model, images, targets, on)
            parts = np.array_split(np.arange(len(images)), len(on))
            found = [alone(model, images[part], targets[part], on[:1])[1] for part in parts]
            shares = [len(part) / len(images) if by_images else 1 / len(on) for part in parts]
            shares = [(1 + (by or {}).get(len(images), 0.0)) * share for share in shares]
            each = list(zip(shares, found, strict=True))
            return 0.0, {name: sum(s * f[name] for s, f in each) for name in found[0]}

        monkeypatch.setattr(framework, "gradients", gradients)
        return calls

    return have


@pytest.fixture
def on_all(network: Any) -> Callable[[int], list[Check]]:
    return lambda count: reference_checks.same_on_all_devices(framework, network, ONE * count)


def test_averages_of_averages_are_known_and_the_rest_is_held_to_the_limit(
    devices: Any, on_all: Any
) -> None:
    """Four images, even on two devices; three images, two on one device and one on the other."""
    calls = devices(by={4: BELOW * EXACT, 3: BELOW * EXACT})
    even, uneven = on_all(2)
    assert calls == [(4, 2), (3, 1), (3, 2), (2, 1), (1, 1)]
    assert (even.check, even.verdict, even.reason) == (EVEN, "pass", AVERAGED)
    assert (uneven.check, uneven.verdict) == (UNEVEN, "expected")
    assert uneven.reason == AVERAGE_OF_AVERAGES
    assert 0.05 < (uneven.difference or 0.0) < 0.5

    devices(by={4: ABOVE * EXACT})
    assert failed(on_all(2)) == {EVEN}
    devices(by={3: ABOVE * EXACT})
    assert failed(on_all(2)) == {UNEVEN}
    devices(by={4: 1.0})
    assert on_all(2)[0].reason == "2 times as long: a sum in place of a mean?"


def test_a_framework_that_weighs_its_devices_by_their_images_passes(
    devices: Any, on_all: Any
) -> None:
    devices(by_images=True, by={3: BELOW * EXACT})
    found = [(c.check, c.verdict, c.reason) for c in on_all(2)]
    assert found == [(EVEN, "pass", AVERAGED), (UNEVEN, "pass", AVERAGED)]
    devices(by_images=True, by={3: ABOVE * EXACT})
    assert failed(on_all(2)) == {UNEVEN}
    assert reference_checks.uneven_on_all_devices(framework, ONE * 2).verdict == "fail"


def test_two_devices_are_held_against_the_reference(devices: Any, on_all: Any, moved: Any) -> None:
    devices()
    for name in reference.KEPT["densenet121"].gradients:  # the three as one vector
        moved({name: 1e-6})
        assert failed(on_all(2)) == {EVEN}


def test_more_devices_than_half_the_images_get_more_images(devices: Any, on_all: Any) -> None:
    """And are held against one device with those."""
    calls = devices(by={6: BELOW * EXACT, 5: BELOW * EXACT})
    assert [check.verdict for check in on_all(3)] == ["pass", "expected"]
    assert calls == [(6, 1), (6, 3), (5, 1), (5, 3), (2, 1), (2, 1), (1, 1)]
    devices(by={6: ABOVE * EXACT})
    assert failed(on_all(3)) == {EVEN}
