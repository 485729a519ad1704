"""TensorFlow and Keras on GPUs, as far as they go where only the hardware is missing.

Physical GPUs are put into TensorFlow's context, which then decides as it would on such a machine;
where the GPUs have to compute, CPU devices do. Runs in the tensorflow environment.
"""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from notebook_cells import (
    failed,
)
from notebook_program import names_of
from tensorflow.python.eager import context

from helpers.fairness import reference_checks
from helpers.frameworks import (
    devices,
    installed,
    keras,
    tensorflow,
    tensorflow_strategies,
)
from helpers.frameworks.capabilities import Gpu
from helpers.networks import tensorflow as networks
from helpers.recipe import RECIPES

MODULES = {"tensorflow": tensorflow, "keras": keras}
TWO = tensorflow.list_devices("cpu", 2)


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> context.Context:
    """A context that has not begun to compute, on a machine with four GPUs."""
    fresh = context.Context()
    monkeypatch.setattr(context, "_context", fresh)
    fresh._initialize_physical_devices()
    gpus = [context.PhysicalDevice(f"/physical_device:GPU:{i}", "GPU") for i in range(4)]
    fresh._physical_devices = [*fresh._physical_devices, *gpus]
    fresh._visible_device_list = list(fresh._physical_devices)
    fresh._memory_growth_map.update(dict.fromkeys(gpus))
    return fresh


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("module", MODULES)
def test_a_run_may_leave_gpus_unused_stand_in(
    module: str, count: int, four_gpus: context.Context
) -> None:
    """TensorFlow's own options for so many of them: it sees no other, and they grow."""
    assert MODULES[module].list_devices("gpu", count) == [f"GPU:{i}" for i in range(count)]
    options = four_gpus.config.gpu_options
    assert options.visible_device_list == ",".join(map(str, range(count)))
    assert options.allow_growth
    assert MODULES[module].list_devices("gpu", count), "the cell may be run again"


@pytest.mark.usefixtures("four_gpus")
def test_the_fairness_check_too_sums_by_nccl_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorflow_strategies, "_OVER", {})
    told = mock.Mock(side_effect=lambda *given: given, _collective_key_base=0)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", told)
    places, reduction = tensorflow_strategies.over(None, tensorflow.list_devices("gpu", 2))
    assert places == ["GPU:0", "GPU:1"]
    assert isinstance(reduction, tf.distribute.NcclAllReduce)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two "GPUs", where CPU devices compute."""
    monkeypatch.setattr(devices, "visible", lambda: [Gpu("A"), Gpu("B")])
    monkeypatch.setattr(installed, "why_not_here", lambda gpus: None)
    for module in MODULES.values():
        monkeypatch.setattr(module, "list_devices", lambda kind, count: TWO[:count])


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("notebook", ["TensorFlow_MultiGPU", "Keras_MultiGPU"])
def test_gradients_are_summed_by_nccl_stand_in(notebook: str, tmp_path: Path) -> None:
    names = names_of(notebook, tmp_path, devices=2)
    assert isinstance(names["strategy"].extended._cross_device_ops, tf.distribute.NcclAllReduce)


@pytest.mark.usefixtures("two_gpus")
def test_several_nodes_reduce_by_nccl_stand_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """TensorFlow takes NCCL only by its name: AUTO is the ring between GPUs too."""
    monkeypatch.setenv("TF_CONFIG", "")
    told = mock.Mock(return_value=SimpleNamespace(num_replicas_in_sync=2))
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", told)
    names_of("TensorFlow_MultiGPU", tmp_path, until="def augment(", devices=2)
    options = told.call_args.kwargs["communication_options"]
    assert options.implementation.value == "NCCL"


def tf32(x: tf.Tensor) -> tf.Tensor:
    """float32 as a tensor core of Ampere takes it, with 10 bits of mantissa."""
    if x.dtype != tf.float32 or not tf.config.experimental.tensor_float_32_execution_enabled():
        return x
    return tf.bitcast((tf.bitcast(x, tf.int32) + (1 << 12)) & ~((1 << 13) - 1), tf.float32)


@pytest.fixture
def tensor_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Products as on Ampere and newer, wherever TensorFlow allows TF32."""
    conv2d, matmul = tf.nn.conv2d, tf.linalg.matmul
    monkeypatch.setattr(tf.nn, "conv2d", lambda x, w, *how: conv2d(tf32(x), tf32(w), *how))
    monkeypatch.setattr(tf.linalg, "matmul", lambda a, b: matmul(tf32(a), tf32(b)))
    yield
    tensorflow.configure("fp32", "cpu")


@pytest.mark.usefixtures("tensor_cores")
def test_the_network_is_told_from_others_whatever_the_precision_stand_in() -> None:
    """TF32 moves its logits by 5e-3, and an epsilon of 2e-5 by 5e-5: no limit has room for both."""

    def build_model(arrays: Any, recipe: Any = RECIPES["chexnet"]) -> Any:
        model = networks.build("densenet121", arrays, recipe)
        tensorflow.load_weights(model, arrays)
        return model

    tensorflow.configure("tf32", "gpu")
    assert failed(reference_checks.same_in_training(tensorflow, build_model, None)) == set()
    assert tf.config.experimental.tensor_float_32_execution_enabled(), "the run itself may round"
    other = partial(build_model, recipe=replace(RECIPES["chexnet"], bn_epsilon=2e-5))
    checks = reference_checks.same_in_training(tensorflow, other, None)
    assert "logits, training" in failed(checks)


class OnGpu:
    """A tensor whose copy to the host notes that it has begun, and takes what it is given."""

    def __init__(self, begun: list[Any]) -> None:
        self.begun = begun

    def numpy(self) -> np.ndarray:
        self.begun.append(self)
        return np.zeros(())


def test_the_clock_waits_for_this_step_alone_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies that begin when the next step is queued would come after it."""
    interval, begun = sys.getswitchinterval(), list[Any]()
    last = OnGpu(begun)
    monkeypatch.setattr(tensorflow.tf, "device", lambda device: nullcontext())
    monkeypatch.setattr(tensorflow.tf, "zeros", lambda shape: last)
    tensorflow._WAITING.submit(int).result()  # a thread that exists is not waited for
    sys.setswitchinterval(10.0)  # no thread takes its turn unless it is given it
    try:
        wait = tensorflow.queued("GPU:0")
        at_once = list(begun)
    finally:
        sys.setswitchinterval(interval)
    assert wait is not None
    wait()
    assert at_once == begun == [last]
