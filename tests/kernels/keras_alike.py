"""The tests that Keras passes on JAX; on TensorFlow it has more of its own.

A test file has them by ``from keras_alike import *``. Its ``GIVEN`` are the notebook's parameters.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import multiplied
import numpy as np
import own_networks
import pytest
import same_networks
from notebook_cells import CHECKED, failed, failed_in_training_loop, namespace_of
from resuming import assert_resumes

from helpers.fairness import reference
from helpers.networks import weights
from helpers.training.step_clock import StepClock
from helpers.training.world import World

NOTEBOOK = "Keras_MultiGPU"
KNOWN = {"running variance after a step", "running variance after 5 SGD steps"}
"""Known differences of Keras on every backend, beside that of its Adam."""

Names = dict[str, Any]


def world(names: Names) -> World:
    """That of the notebook's one process."""
    return names["this_run"].world  # type: ignore[no-any-return]


def shallow_replica(names: Names) -> Any:
    """What the notebook starts for a shallow network."""
    run = names["this_run"]
    network = run.framework.shallow(reference.shallow_arrays(), run.devices)
    return names["start"](world(names), network)


def noise(names: Names) -> Iterator[Any]:
    """Two images for each device, again and again."""
    crop = names["crop"]
    grey = np.random.default_rng(0).integers(0, 256, (2, crop, crop, 1), dtype=np.uint8)
    shares = [(grey, np.zeros((2, 14), np.float32))] * len(names["this_run"].devices)
    batches: Iterator[Any] = names["make_fixed_loader"](world(names), shares)
    return batches


def train(names: Names, replica: Any, loader: Iterator[Any], steps: int) -> tuple[float, StepClock]:
    with StepClock(names["framework"].completion) as clock:
        loss = names["train_epoch"](replica, loader, steps, clock)
    return loss, clock


@pytest.fixture(scope="module")
def given(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.module.GIVEN
    return found


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory, given: dict[str, Any]) -> Names:
    """The notebook's names before it trains."""
    return namespace_of(NOTEBOOK, tmp_path_factory.mktemp("notebook"), until=CHECKED, **given)


def test_weights_come_back_bit_for_bit(notebook: Names) -> None:
    initial = weights.canonical("random", seed=0)
    assert weights.digest(notebook["framework"].dump_weights(notebook["model"])) == initial.sha256


def test_faults_are_caught(notebook: Names) -> None:
    """A BatchNorm that does not train, and a loss that is a sum over the images."""
    frozen = "training=training)", "training=False)"
    found = failed_in_training_loop(notebook, NOTEBOOK, *frozen)
    assert {"weight change after 5 SGD steps", "running mean after 5 SGD steps"} <= found
    run, sound = notebook["this_run"], notebook["criterion"]
    before = run.fairness_check
    notebook["criterion"] = type(sound)(from_logits=True, reduction="sum")
    try:
        run.check_training_loop(**vars(run.functions))
        found = failed(run.fairness_check.checks)
    finally:
        notebook["criterion"], run.fairness_check = sound, before
    assert {"mean loss of 5 SGD steps", "weight change after 5 SGD steps"} <= found


def test_adam_is_where_it_was(notebook: Names) -> None:
    framework, replica = notebook["framework"], shallow_replica(notebook)
    network = replica.network
    framework.load_optimizer(network, replica.optimizer, {})
    train(notebook, replica, noise(notebook), 2)
    state = framework.dump_optimizer(network, replica.optimizer)
    assert state["step"] == 2 and len(state) == 1 + 2 * len(network.trainable_variables)
    assert state["first/features.conv0.weight"].shape == (64, 3, 7, 7)
    again = shallow_replica(notebook)
    framework.load_optimizer(again.network, again.optimizer, state)
    found = framework.dump_optimizer(again.network, again.optimizer)
    assert found.keys() == state.keys()
    assert all(np.array_equal(found[name], state[name]) for name in state)
    assert np.abs(state["second/features.conv0.weight"]).max() > 0
    assert framework.learning_rate(replica.optimizer) == np.float32(replica.rate)


def test_fit_takes_every_batch_once_and_in_order(notebook: Names) -> None:
    """Epoch after epoch, once and in order; Keras would draw some more to build the model by."""
    grey, targets = next(noise(notebook))
    given = ((np.full_like(grey, number), targets) for number in range(20))
    replica, taken = shallow_replica(notebook), []

    class Noting(StepClock):
        def batches(self, loader: Any) -> Iterator[Any]:
            for batch in super().batches(loader):
                taken.append(int(np.asarray(batch[0]).mean()))
                yield batch

    for steps in (3, 3, 2):
        with Noting(notebook["framework"].completion) as clock:
            notebook["train_epoch"](replica, given, steps, clock)
        assert clock.steps == steps
    assert taken == list(range(8))
    assert next(given)[0].mean() == 8, "what comes next was not read ahead by fit"


def test_the_clock_sees_what_fit_waits_for(notebook: Names) -> None:
    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(0.5)  # longer than a step of this network on any machine
            yield batch

    replica, waited = shallow_replica(notebook), []
    for loader in (noise(notebook), slowly(noise(notebook))):
        loss, clock = train(notebook, replica, loader, 6)
        assert len(clock.step_seconds) == 5 and loss > 0
        waited.append(clock.data_seconds)
    assert waited[1] > waited[0] + 0.5


def test_another_momentum_is_caught(notebook: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    same_networks.assert_another_momentum_is_caught(notebook, monkeypatch)


def test_resnet44_is_the_references(notebook: Names) -> None:
    from helpers.networks import keras as networks  # after the backend is chosen

    one, known = notebook["this_run"].devices[:1], {"running variance after a step"}
    same_networks.assert_is_the_references(notebook["framework"], networks, "resnet44", one, known)


def test_the_weights_of_a_custom_network_follow_from_the_seed(
    notebook: Names, tmp_path: Path
) -> None:
    own_networks.assert_same_seed_same_bytes(notebook["framework"], "keras", tmp_path)


@pytest.mark.parametrize("precision", [pytest.param("bf16", marks=pytest.mark.slow), "fp16"])
def test_the_training_loop_check_is_passed_in_16_bits(
    given: dict[str, Any], tmp_path: Path, precision: str
) -> None:
    import keras  # after the backend is chosen

    try:
        names = namespace_of(
            NOTEBOOK, tmp_path, until=CHECKED, precision=precision, checked=False, **given
        )
        run = names["this_run"]
        run.check_training_loop(**vars(run.functions))
        model = names["build_model"](run.initial.arrays)
    finally:
        keras.config.set_dtype_policy("float32")
    checks = run.fairness_check.checks
    assert checks and failed(checks) == set()
    assert {variable.dtype for variable in model.variables} == {"float32"}
    replica = names["start"](world(names), model)
    state = names["framework"].dump_optimizer(replica.network, replica.optimizer)
    assert ("scale" in state) == (precision == "fp16")


@pytest.mark.slow  # three processes compile
def test_a_killed_run_goes_on_as_if_nothing_had_been(given: dict[str, Any], tmp_path: Path) -> None:
    assert_resumes(NOTEBOOK, tmp_path, bits=True, **given)


def test_a_matrix_product_is_waited_for(notebook: Names) -> None:
    multiplied.assert_waited_for(notebook["framework"], notebook["this_run"].devices[-1])
