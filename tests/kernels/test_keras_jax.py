"""Runs in the jax environment: ``.venvs/jax/bin/python -m pytest`` with this file."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from helpers.frameworks import keras_jax as framework  # before Keras, whose backend it sets

# isort: split
import jax
import keras
import keras_alike as alike
import multiplied
import own_networks
import pytest
import same_networks
from agreed import assert_stops_within_an_epoch
from notebook_cells import (
    CHECKED,
    EPSILON_FIRST,
    assert_passed,
    failed,
    namespace_of,
    other_norms,
)
from resuming import assert_resumes

from helpers.errors import UserError
from helpers.fairness import reference, reference_checks, training_loop
from helpers.frameworks import keras_backends
from helpers.networks import keras as networks
from helpers.training.step_clock import StepClock

TWO = framework.list_devices("cpu", 2)
SURVIVE = "which replica's running statistics are kept"
namespace = partial(namespace_of, alike.NOTEBOOK, backend="jax", devices=2, until=CHECKED)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The notebook's names on two virtual devices, before it trains."""
    return namespace(tmp_path_factory.mktemp("notebook"))


def test_weights_come_back_bit_for_bit(notebook: dict[str, Any]) -> None:
    alike.assert_weights_come_back(notebook)


def test_the_fairness_check_is_passed(notebook: dict[str, Any]) -> None:
    """BatchNorm's statistics are the global batch's: a known difference, predicted."""
    known = {*alike.KNOWN, EPSILON_FIRST, SURVIVE}
    assert_passed(notebook["this_run"], known=known, survivors=training_loop.GLOBAL)


def test_its_weights_are_on_both_devices_and_its_batches_are_cut(notebook: dict[str, Any]) -> None:
    replica, seen = alike.shallow_replica(notebook), []
    for variable in replica.network.variables:
        assert variable.value.sharding.is_fully_replicated
        assert variable.value.sharding.device_set == set(TWO)

    class Noting(StepClock):
        def batches(self, loader: Any) -> Iterator[Any]:
            for batch in super().batches(loader):
                seen.append([shard.data.shape[0] for shard in batch[0].addressable_shards])
                yield batch

    with Noting(framework.completion) as clock:
        notebook["train_epoch"](replica, alike.noise(notebook), 1, clock)
    assert seen == [[2, 2]]


def test_faults_are_caught(notebook: dict[str, Any]) -> None:
    alike.assert_faults_are_caught(notebook)


def test_another_momentum_is_caught(notebook: dict[str, Any]) -> None:
    with other_norms(notebook, bn_momentum=0.01):  # Keras's own is 0.99, of the old value
        network = framework.exact(notebook["build_model"], reference.arrays())
        checks = reference_checks.same_in_training(framework, notebook["build_model"], network)
    assert failed(checks) == {"running mean after a step", "running variance after a step"}


def test_gradients_that_are_summed_are_caught(
    notebook: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two devices' that are twice as long as one's."""
    sound = framework.gradients

    def summed(model: Any, images: Any, targets: Any, devices: Any) -> Any:
        loss, found = sound(model, images, targets, devices)
        return loss, {name: len(devices) * each for name, each in found.items()}

    monkeypatch.setattr(framework, "gradients", summed)
    check = reference_checks.uneven_on_all_devices(framework, TWO)
    assert check.verdict == "fail"


def test_resnet44_is_the_references() -> None:
    known = {"running variance after a step"}
    same_networks.assert_is_the_references(framework, networks, "resnet44", TWO[:1], known)


def test_the_weights_of_a_custom_network_follow_from_the_seed(tmp_path: Path) -> None:
    own_networks.assert_same_seed_same_bytes(framework, "keras", tmp_path)


def test_adam_is_where_it_was(notebook: dict[str, Any]) -> None:
    alike.assert_adam_is_where_it_was(notebook)


def test_fit_takes_every_batch_once_and_in_order(notebook: dict[str, Any]) -> None:
    alike.assert_fit_takes_every_batch(notebook)


def test_the_clock_sees_what_fit_waits_for(notebook: dict[str, Any]) -> None:
    alike.assert_the_clock_sees_what_fit_waits_for(notebook)


def test_the_variables_stay_out_of_the_model_within_an_epoch(
    notebook: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put back at every step, they would cost an assignment each."""
    synced: list[Any] = []
    sync = keras.Model.jax_state_sync

    def counted(model: Any) -> None:
        synced.append(not model._jax_state_synced)
        sync(model)

    monkeypatch.setattr(keras.Model, "jax_state_sync", counted)
    alike.train(notebook, alike.shallow_replica(notebook), alike.noise(notebook), 5)
    assert sum(synced) == 1, "when the epoch has ended"


def test_the_all_reduce_sums_what_the_gradients_are(notebook: dict[str, Any]) -> None:
    replica = alike.shallow_replica(notebook)
    found = replica.all_reduce()
    assert [each.shape for each in found] == [v.shape for v in replica.network.trainable_variables]
    assert {device for each in found for device in each.devices()} == set(TWO)
    with StepClock(framework.completion) as clock:
        notebook["all_reduce_alone"](replica, 2, clock)
    assert clock.steps == 2


@pytest.mark.parametrize("precision", [pytest.param("bf16", marks=pytest.mark.slow), "fp16"])
def test_the_training_loop_check_is_passed_in_16_bits(tmp_path: Path, precision: str) -> None:
    try:
        names = namespace(tmp_path, precision=precision, checked=False)
        names["this_run"].check_training_loop(names["this_run"].functions)
    finally:
        keras.config.set_dtype_policy("float32")
    checks = names["this_run"].fairness_check.checks
    assert checks and failed(checks) == set()
    assert {variable.dtype for variable in names["model"].variables} == {"float32"}
    replica = names["start"](alike.world(names), names["model"])
    state = framework.dump_optimizer(replica.network, replica.optimizer)
    assert ("scale" in state) == (precision == "fp16")


def test_on_the_cpu_no_step_is_queued_behind_another(notebook: dict[str, Any]) -> None:
    """Virtual devices share threads, and queued steps may wait for each other's for ever."""
    replica = alike.shallow_replica(notebook)
    found = replica.all_reduce()
    assert framework.completion(found) is None
    assert all(array.is_ready() for array in found)


def test_devices_and_versions() -> None:
    assert framework.list_devices("cpu", 1) == TWO[:1]
    versions = framework.versions()
    assert (versions["keras"], versions["jax"]) == (keras.__version__, jax.__version__)
    assert "flax" not in versions
    framework.synchronize(TWO)
    assert framework.SKIPPED.get("virtual devices") is None


def test_another_backend_is_refused_in_a_line() -> None:
    with pytest.raises(UserError, match="give one of 'tensorflow', 'jax', 'torch'"):
        keras_backends.module_of("mxnet")
    with pytest.raises(UserError, match="Keras runs on jax already: restart it"):
        keras_backends.module_of("tensorflow")


CHOSEN = """
from helpers.errors import UserError
from helpers.frameworks import keras_backends
try:
    keras_backends.module_of("tensorflow")
except UserError as error:
    print(error)
framework = keras_backends.module_of("jax")
import keras
print(framework.KERNEL, keras.backend.backend(), keras.config.floatx(),
      keras.config.image_data_format())
"""


def test_neither_the_shell_nor_keras_json_decides_and_the_right_kernel_is_named(
    tmp_path: Path,
) -> None:
    """In a process of its own: what Keras runs on cannot change afterwards."""
    said = {"backend": "torch", "floatx": "float64", "image_data_format": "channels_first"}
    (tmp_path / "keras.json").write_text(json.dumps(said))
    done = subprocess.run(
        [sys.executable, "-c", CHOSEN],
        env={**os.environ, "KERAS_BACKEND": "torch", "KERAS_HOME": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "backend is 'tensorflow', but this kernel has no tensorflow: choose the kernel "
        "'tensorflow', or run: rosetta run --frameworks keras; if it is that kernel, its "
        "environment is older than its lock: make envs",
        "jax jax float32 channels_last",
    ]


def test_a_run_that_is_asked_to_stop_ends_with_the_weights_of_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_stops_within_an_epoch(alike.NOTEBOOK, tmp_path, monkeypatch, backend="jax")


@pytest.mark.slow  # three processes compile
def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    assert_resumes(alike.NOTEBOOK, tmp_path, bits=True, backend="jax")


def test_a_matrix_product_is_waited_for() -> None:
    multiplied.assert_waited_for(framework, TWO[1])
