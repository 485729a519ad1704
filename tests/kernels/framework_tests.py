"""The tests of a framework's modules that need no notebook, run once in each environment.

A framework's test file has them by ``from framework_tests import *``, and says in ``ADAPTER`` what
they run on.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import own_networks
import pytest

from helpers.errors import UnsupportedError, UserError
from helpers.fairness import one_step, reference, reference_checks
from helpers.fairness.check_results import Check
from helpers.networks import custom
from helpers.networks.shapes import shapes
from helpers.recipe import RECIPES
from helpers.recipe.settings import PRECISIONS

STEP = "running variance after a step"


@dataclass(frozen=True)
class OfPrograms:
    """What the tests run on."""

    framework: Any
    networks: ModuleType
    devices: Sequence[Any]
    """Two CPU devices."""
    notebooks: Sequence[str]
    seen: Callable[[Any, np.ndarray], np.ndarray]
    """What the notebook's network sees of pixels (N, H, W, C), as floats (N, 3, H, W)."""
    known: frozenset[str] = frozenset()
    """Rows of the fairness check that are a known difference."""
    kept: str = "replica 0's"
    """Whose running statistics are kept of two devices'."""

    @property
    def module(self) -> str:
        name: str = self.framework.__name__
        return name.rpartition(".")[2]


@pytest.fixture(scope="module")
def adapter(request: pytest.FixtureRequest) -> OfPrograms:
    found: OfPrograms = request.module.ADAPTER
    return found


def test_weights_that_do_not_fit_are_refused(adapter: OfPrograms) -> None:
    arrays, load = reference.shallow_arrays(), adapter.framework.load_weights
    model = adapter.framework.shallow(arrays, adapter.devices)
    with pytest.raises(ValueError, match=r"classifier\.odd"):
        load(model, arrays | {"classifier.odd": np.zeros(1, np.float32)})
    with pytest.raises(ValueError, match=r"classifier\.bias"):
        load(model, {name: each for name, each in arrays.items() if name != "classifier.bias"})
    transposed = {"classifier.weight": np.ascontiguousarray(arrays["classifier.weight"].T)}
    with pytest.raises((ValueError, RuntimeError), match=r"classifier\.weight"):
        load(model, arrays | transposed)


def assert_float32_is_float32(
    configure: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the CUDA libraries' own switch."""
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    configure("fp32", "gpu")
    assert os.environ["NVIDIA_TF32_OVERRIDE"] == "0"
    configure("tf32", "gpu")
    assert "NVIDIA_TF32_OVERRIDE" not in os.environ


def test_a_precision_that_it_cannot_compute_in_is_refused_with_its_reason(
    adapter: OfPrograms,
) -> None:
    reasons = {name: adapter.framework.SKIPPED.get(name) for name in PRECISIONS}
    for precision in (name for name, reason in reasons.items() if reason):
        with pytest.raises(UnsupportedError, match=f"precision {precision}: {reasons[precision]}"):
            adapter.framework.configure(precision, "gpu")
    with pytest.raises(UnsupportedError, match="tensor cores"):
        adapter.framework.configure("tf32", "cpu")


def test_the_step_of_the_self_test_is_right_and_another_is_not(adapter: OfPrograms) -> None:
    taken: list[Any] = []

    def gradients(*given: Any) -> Any:
        taken.append(adapter.framework.gradients(*given))
        return taken[-1]

    def problem(gradients: Callable[..., Any]) -> str | None:
        step = SimpleNamespace(shallow=lambda *given: None, gradients=gradients)
        return one_step.problem(step, adapter.devices)

    step = SimpleNamespace(shallow=adapter.framework.shallow, gradients=gradients)
    assert one_step.problem(step, adapter.devices) is None
    [(loss, found)] = taken
    off = str(problem(lambda *given: (loss + 1e-4, found)))
    assert off.startswith("wrong result: the loss is off by 0.0001")
    for name in found:
        for factor in (0, 2, np.nan):
            other = found | {name: found[name] * factor}
            off = str(problem(lambda *given, other=other: (loss, other)))
            assert off.startswith("wrong result: the gradients are off by "), (name, factor)


Arrays = Mapping[str, np.ndarray]


def builder(adapter: OfPrograms, network: str, **norms: Any) -> Callable[[Arrays], Any]:
    """What makes a network of its weights; ``norms`` are other settings of BatchNorm."""

    def build_model(arrays: Arrays) -> Any:
        model = adapter.networks.build(network, arrays, replace(RECIPES["chexnet"], **norms))
        if hasattr(model, "initialize"):  # Gluon places a model so
            model.initialize(ctx=list(adapter.devices[:1]))
        adapter.framework.load_weights(model, arrays)
        return model

    return build_model


def test_resnet50_is_the_references(adapter: OfPrograms) -> None:
    """On one device: that several give the same is the notebooks' to show, of other networks."""
    network, framework, one = "resnet50", adapter.framework, adapter.devices[:1]
    build_model, start = builder(adapter, network), reference.arrays(network)
    held = framework.dump_weights(build_model(start))
    assert {name: array.shape for name, array in held.items()} == shapes(network)
    model = framework.exact(build_model, start)
    found = [
        reference_checks.same_weights(held, start),
        *reference_checks.same_network(framework, model, one, network),
        *reference_checks.same_in_training(framework, build_model, model, network),
    ]
    known = adapter.known & {STEP}
    verdicts = {check.check: check.verdict for check in found}
    assert verdicts == {name: "expected" if name in known else "pass" for name in verdicts}
    assert known <= verdicts.keys()
    assert_in_double(found)


def assert_in_double(checks: Iterable[Check]) -> None:
    exact = [check for check in checks if check.threshold == reference_checks.EXACT]
    assert len(exact) >= 5, "logits, loss and three gradients"


def of_logits(adapter: OfPrograms, network: str, **norms: Any) -> str:
    """The verdict on a network's logits; ``norms`` as :func:`builder` has it."""
    model = adapter.framework.exact(builder(adapter, network, **norms), reference.arrays(network))
    return reference_checks.same_logits(adapter.framework, model, network).verdict


@pytest.mark.parametrize("network", ["densenet121", "resnet44"])
def test_a_networks_logits_are_the_references(adapter: OfPrograms, network: str) -> None:
    assert of_logits(adapter, network) == "pass"


def test_its_weights_follow_from_the_seed(adapter: OfPrograms, tmp_path: Path) -> None:
    """Twice, whatever was drawn in between; another seed draws others."""
    framework, module = adapter.framework, adapter.module
    recipe = own_networks.read(own_networks.recipe_of(tmp_path, module))
    first = custom.initial(framework, recipe, 5)
    other = own_networks.recipe_of(tmp_path / "other", module)
    custom.initial(framework, own_networks.read(other), 3)
    np.random.random(7)  # noqa: NPY002
    again = custom.initial(framework, recipe, 5)
    assert again.sha256 == first.sha256
    for name, array in first.arrays.items():
        assert np.array_equal(again.arrays[name], array), name
    assert custom.initial(framework, replace(recipe, seed=1), 5).sha256 != first.sha256


WRONG = {
    "raises": ("def net(outputs):\n    1 / 0\n", ", line 2: ZeroDivisionError: division by zero"),
    "another argument": ("def net(outputs, width):\n    pass\n", "required positional argument:"),
    "nothing": ("def net(outputs):\n    pass\n", "returns a NoneType, not a"),
    "leaves": ("import sys\ndef net(outputs):\n    sys.exit(3)\n", ", line 3: SystemExit: 3"),
    "at once": ("import nowhere\ndef net(outputs):\n    pass\n", "No module named 'nowhere'"),
}
"""Code that is wrong in any framework, and what is said of it."""


def test_mistakes_in_own_code_are_one_line_each(adapter: OfPrograms, tmp_path: Path) -> None:
    """One line names the mistake, the file and the function."""
    # Seven logits, whatever was asked for.
    seven = own_networks.NETS[adapter.module]
    seven += "\n\nfive = net\n\n\ndef net(outputs):\n    return five(7)\n"
    said = "for 2 images of 32 px its network returns [2, 7]: give 5 logits an image, [2, 5]"
    for number, (code, told) in enumerate([*WRONG.values(), (seven, said)]):
        folder = tmp_path / str(number)
        recipe = own_networks.read(own_networks.recipe_of(folder, adapter.module, code))
        with pytest.raises(UserError) as error:
            adapter.networks.own(recipe, 5)
        line = str(error.value)
        assert "\n" not in line and line.startswith(f"{folder.resolve() / 'mine.py'}: net(5)"), line
        assert told in line, line
