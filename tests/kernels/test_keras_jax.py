"""Runs in the jax environment: ``.venvs/jax/bin/python -m pytest`` with this file."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.frameworks import keras_jax as framework  # before Keras, whose backend it sets

# isort: split
import jax
import keras
import keras_alike as alike
import pytest
from keras_alike import *
from notebook_cells import (
    EPSILON_FIRST,
    assert_passed,
)

from helpers.errors import UserError
from helpers.fairness import reference_checks, training_loop
from helpers.frameworks import keras_backends
from helpers.training.step_clock import StepClock

TWO = framework.list_devices("cpu", 2)
SURVIVE = "which replica's running statistics are kept"
GIVEN: dict[str, Any] = {"backend": "jax", "devices": 2}


def test_the_fairness_check_is_passed(notebook: dict[str, Any]) -> None:
    """BatchNorm's statistics are the global batch's: a known difference, predicted."""
    known = {*alike.KNOWN, EPSILON_FIRST, SURVIVE, training_loop.TOGETHER}
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
    with pytest.raises(UserError, match=r"backend is 'mxnet'.*'jax'"):
        keras_backends.module_of("mxnet")
    with pytest.raises(UserError, match="Keras already runs on jax: restart the kernel"):
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
