"""Runs in the tensorflow environment: ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

import time
import warnings
from collections.abc import Iterator
from itertools import islice, repeat
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from mirrored import *
from notebook_cells import EPSILON_FIRST, failed, recipe_of_resnet44
from notebook_program import Names, fairness_check, names_of, own_names
from program_tests import *

from helpers.frameworks import keras as framework
from helpers.networks import keras as networks

# The variables of both belong to the notebook's strategy; a test below has them.
del test_every_rule_is_the_references, test_adam_continues_where_it_was  # noqa: F821

# Compiling takes most of their time; other frameworks take these tests every day.
pytest.mark.slow(test_resnet50_is_the_references)
pytest.mark.slow(test_it_trains_the_recipes_network)
pytest.mark.slow(test_a_killed_run_of_ones_own_ends_with_the_weights_of_a_whole_one)

NOTEBOOK = "Keras_MultiGPU"
UNEVEN = "gradients, uneven batch, n devices / one"
TWO = framework.list_devices("cpu", 2)


@pytest.mark.slow  # TensorFlow is checked in bf16 every day
def test_it_trains_the_recipes_network_in_bf16(tmp_path: Path) -> None:
    """Weights, classifier and loss stay in float32."""
    given: dict[str, Any] = {"recipe": recipe_of_resnet44(tmp_path), "precision": "bf16"}
    names = names_of(NOTEBOOK, tmp_path, devices=2, **given)
    try:
        found = fairness_check(names)
        network = names["build_model"]()
    finally:
        keras.config.set_dtype_policy("float32")
    assert failed(found.checks) == set() and found.comparable
    *policies, last = (layer.dtype_policy.name for layer in network.layers)
    assert last == "float32" and "mixed_bfloat16" in policies
    assert {variable.dtype for variable in network.variables} == {"float32"}


@pytest.fixture(scope="module", params=[pytest.param(1, marks=pytest.mark.slow), 2])
def names(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Names:
    """On one device and on two, before it trains."""
    return own_names(
        NOTEBOOK, tmp_path_factory.mktemp("notebook"), devices=request.param, batch_size=8
    )


class Numbers(keras.utils.PyDataset):
    """Batches of images that are their numbers, which threads read in any order."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers=workers, max_queue_size=2 * workers)
        self.read: list[int] = []

    def __len__(self) -> int:
        return 12

    def __getitem__(self, k: int) -> tuple[np.ndarray, ...]:
        self.read.append(k)
        time.sleep(0.01 * (k % 3))
        numbers = np.arange(4 * k, 4 * k + 4)
        return numbers[:, None].astype(np.float32), np.zeros((4, 1), np.float32), numbers


def trainer(names: Names) -> tuple[Any, list[float]]:
    """A model on the notebook's devices, and the images that it is trained or evaluated on."""
    seen: list[float] = []

    def note(images: np.ndarray) -> np.ndarray:
        seen.extend(images[:, 0].tolist())
        return images

    with names["strategy"].scope():
        layer = keras.layers.Dense(1)
        layer.build((None, 1))
        optimizer = keras.optimizers.SGD(0.0)
        optimizer.build(layer.trainable_variables)
    images = keras.Input((1,))
    noted = keras.layers.Lambda(
        lambda x: tf.ensure_shape(tf.numpy_function(note, [x], x.dtype), x.shape), (1,)
    )(images)
    model = keras.Model(images, layer(noted))
    with names["strategy"].scope():
        model.compile(optimizer, "mse")
    return model, seen


@pytest.mark.parametrize("workers", [0, 3])
def test_what_fit_and_predict_take_is_what_is_noted(names: Names, workers: int) -> None:
    """Each batch once and in order, epoch after epoch, whichever thread reads it."""
    model, seen = trainer(names)
    for steps, batches in ((12, Numbers(workers)), (5, islice(Numbers(0), 5)), (2, Numbers(3))):
        for train in (True, False):
            seen.clear()
            noting = mock.MagicMock()
            noting.__enter__.return_value = noting
            watched: Any = framework.watched(batches if train else Numbers(workers), noting)
            how = {"callbacks": [watched.callback], "verbose": 0}
            with names["strategy"].scope(), warnings.catch_warnings():
                warnings.simplefilter("error")  # not that the input ran out of data
                if train:
                    model.fit(watched, steps_per_epoch=steps, **how)
                else:
                    model.predict(watched, steps=steps, **how)
            told = [call.args for call in noting.batch.call_args_list]
            found = np.concatenate([numbers for (_, _, numbers), _ in told])
            assert found.tolist() == list(range(4 * steps)) and sorted(seen) == found.tolist()
            assert [call[0] for call in noting.method_calls] == ["batch", "step"] * steps
            assert noting.__exit__.called
            times = [at for _, at in told]
            assert times == sorted(times)


def test_the_clock_sees_what_fit_waits_for(names: Names) -> None:
    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(0.5)  # longer than a step of this network on any machine
            yield batch

    run, waited = names["run"], []
    replica = names["make_replica"](names["build_model"]())
    batch = names["make_loader"](run.train_split, True)[0]
    for batches in (repeat(batch, 6), slowly(repeat(batch, 6))):
        assert names["train_steps"](replica, batches, 6) > 0
        assert len(run.loop.clock.step_seconds) == 5
        waited.append(run.loop.clock.data_seconds)
    assert waited[1] > waited[0] + 0.5


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_three_steps_are_one_after_two_that_were_saved(names: Names, optimizer: str) -> None:
    """Momentum's velocity and the place in the schedule too, to the last bit."""
    run = names["run"]
    batch = names["make_loader"](run.train_split, True)[0]
    rates = (0.1, 0.1, 0.01)

    def steps(arrays: Any, state: Any, count: int) -> tuple[Any, Any]:
        replica = names["make_replica"](names["build_model"]())
        framework.load_weights(replica.network, arrays)
        if state:
            framework.load_optimizer(replica, state, 2)
        names["train_steps"](replica, repeat(batch, count), count)
        kept = framework.dump_optimizer(replica)
        return framework.dump_weights(replica.network), kept

    how = {"optimizer": optimizer, "learning_rate": 1.0, "lr_scaling": "none", "rates": rates}
    with run.recipe.varied(**how):
        start = run.initial.arrays
        whole, _ = steps(start, {}, 3)
        two, state = steps(start, {}, 2)
        resumed, after = steps(two, state, 1)
    assert (state["0"], after["0"]) == (2, 3), "updates"
    for name, array in whole.items():
        assert np.array_equal(resumed[name], array), name


def seen(names: Names, pixels: np.ndarray) -> np.ndarray:
    return np.asarray(names["to_network"](pixels)).transpose(0, 3, 1, 2)


ADAPTER = OfPrograms(
    framework,
    networks,
    TWO,
    known=frozenset({STEP, "running variance after 5 SGD steps", EPSILON_FIRST, UNEVEN}),
    notebooks=(NOTEBOOK,),
    seen=seen,
)
