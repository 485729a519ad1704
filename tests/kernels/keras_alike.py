"""What the tests of Keras on JAX and on PyTorch assert alike; those on TensorFlow assert more."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from notebook_cells import failed, failed_in_training_loop

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


def assert_weights_come_back(names: Names) -> None:
    initial = weights.canonical("random", seed=0)
    assert weights.digest(names["framework"].dump_weights(names["model"])) == initial.sha256


def assert_faults_are_caught(names: Names) -> None:
    """A BatchNorm that does not train, and a loss that is a sum over the images."""
    frozen = "training=training)", "training=False)"
    found = failed_in_training_loop(names, NOTEBOOK, *frozen)
    assert {"weight change after 5 SGD steps", "running mean after 5 SGD steps"} <= found
    run, sound = names["this_run"], names["criterion"]
    before = run.fairness_check
    names["criterion"] = type(sound)(from_logits=True, reduction="sum")
    try:
        run.check_training_loop(run.functions)
        found = failed(run.fairness_check.checks)
    finally:
        names["criterion"], run.fairness_check = sound, before
    assert {"mean loss of 5 SGD steps", "weight change after 5 SGD steps"} <= found


def assert_adam_is_where_it_was(names: Names) -> None:
    framework, replica = names["framework"], shallow_replica(names)
    network = replica.network
    framework.load_optimizer(network, replica.optimizer, {})
    train(names, replica, noise(names), 2)
    state = framework.dump_optimizer(network, replica.optimizer)
    assert state["step"] == 2 and len(state) == 1 + 2 * len(network.trainable_variables)
    assert state["first/features.conv0.weight"].shape == (64, 3, 7, 7)
    again = shallow_replica(names)
    framework.load_optimizer(again.network, again.optimizer, state)
    found = framework.dump_optimizer(again.network, again.optimizer)
    assert found.keys() == state.keys()
    assert all(np.array_equal(found[name], state[name]) for name in state)
    assert np.abs(state["second/features.conv0.weight"]).max() > 0
    assert framework.learning_rate(replica.optimizer) == np.float32(replica.rate)


def assert_fit_takes_every_batch(names: Names) -> None:
    """Epoch after epoch, once and in order; Keras would draw some more to build the model by."""
    grey, targets = next(noise(names))
    given = ((np.full_like(grey, number), targets) for number in range(20))
    replica, taken = shallow_replica(names), []

    class Noting(StepClock):
        def batches(self, loader: Any) -> Iterator[Any]:
            for batch in super().batches(loader):
                taken.append(int(np.asarray(batch[0]).mean()))
                yield batch

    for steps in (3, 3, 2):
        with Noting(names["framework"].completion) as clock:
            names["train_epoch"](replica, given, steps, clock)
        assert clock.steps == steps
    assert taken == list(range(8))
    assert next(given)[0].mean() == 8, "what comes next was not read ahead by fit"


def assert_the_clock_sees_what_fit_waits_for(names: Names) -> None:
    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(0.5)  # longer than a step of this network on any machine
            yield batch

    replica, waited = shallow_replica(names), []
    for loader in (noise(names), slowly(noise(names))):
        loss, clock = train(names, replica, loader, 6)
        assert len(clock.step_seconds) == 5 and loss > 0
        waited.append(clock.data_seconds)
    assert waited[1] > waited[0] + 0.5
