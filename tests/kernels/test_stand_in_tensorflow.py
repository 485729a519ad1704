"""TensorFlow and Keras on GPUs, as far as they go where only the hardware is missing.

Physical GPUs are put into TensorFlow's context, which then decides as it would on such a machine;
where the GPUs have to compute, CPU devices do. Runs in the tensorflow environment.
"""

import sys
from collections.abc import Callable, Iterator
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

from helpers.errors import UserError
from helpers.fairness import reference_checks
from helpers.frameworks import (
    devices,
    installed,
    keras,
    memory,
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


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The MiB that are free on a GPU, to be changed."""
    found = [14_048]
    monkeypatch.setattr(
        devices, "visible", lambda: [Gpu("A", uuid="GPU-a"), Gpu("B", uuid="GPU-b")]
    )
    monkeypatch.setattr(memory, "free_on_gpus", lambda uuids: found[0] if uuids else None)
    return found


@pytest.mark.parametrize(
    ("gpus", "part", "expected"),
    [
        (1, 3000, ["GPU:0", "GPU:1", "GPU:2", "GPU:3"]),
        (2, 6000, ["GPU:0", "GPU:2", "GPU:1", "GPU:3"]),
    ],
)
@pytest.mark.parametrize("module", MODULES)
def test_replicas_that_share_a_gpu_have_equal_parts_of_its_memory_stand_in(
    module: str, gpus: int, part: int, expected: list[str], four_gpus: Any, free: list[int]
) -> None:
    """TensorFlow's own options: logical GPUs, numbered GPU by GPU, and no memory that grows."""
    assert MODULES[module].list_devices("gpu", 4, gpus) == expected
    options = four_gpus.config.gpu_options
    assert options.visible_device_list == ",".join(map(str, range(gpus)))
    parts = [list(each.memory_limit_mb) for each in options.experimental.virtual_devices]
    assert parts == [[part] * (4 // gpus)] * gpus
    assert not options.allow_growth
    free[0] = 100  # what TensorFlow has taken by then
    assert MODULES[module].list_devices("gpu", 4, gpus) == expected, "the cell may be run again"


@pytest.mark.usefixtures("four_gpus")
def test_a_gpu_that_is_too_full_to_be_shared_is_one_line_stand_in(free: list[int]) -> None:
    free[0] = 4000
    with pytest.raises(UserError, match=r"^devices 4: 4000 MiB of GPU memory are free, too little"):
        tensorflow.list_devices("gpu", 4, 1)


@pytest.mark.usefixtures("four_gpus", "free")
@pytest.mark.parametrize(("gpus", "shared"), [(2, False), (1, True)])
def test_the_fairness_check_too_keeps_nccl_from_what_shares_a_gpu_stand_in(
    gpus: int, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorflow_strategies, "_OVER", {})
    told = mock.Mock(side_effect=lambda *given: given, _collective_key_base=0)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", told)
    found = tensorflow.list_devices("gpu", 2, gpus)
    places, reduction = tensorflow_strategies.over(None, found)
    assert places == ["GPU:0", "GPU:1"]
    assert isinstance(reduction, tf.distribute.ReductionToOneDevice) is shared


@pytest.fixture
def on_gpus(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[], dict[str, Any]]:
    """Runs TensorFlow's notebook until it has its strategy: two replicas on so many "GPUs"."""
    there = [Gpu("A"), Gpu("B")]
    monkeypatch.setattr(devices, "visible", lambda: there)
    monkeypatch.setattr(installed, "why_not_here", lambda gpus: None)
    monkeypatch.setattr(tensorflow, "list_devices", lambda kind, count, gpus: TWO[:count])
    how = {"until": "def augment(", "devices": 2, "gpus": request.param}
    return lambda: names_of("TensorFlow_MultiGPU", tmp_path, **how)


@pytest.mark.parametrize("on_gpus", [2, 1], indirect=True)
def test_where_replicas_share_a_gpu_the_first_one_sums_the_gradients_stand_in(
    on_gpus: Callable[[], dict[str, Any]],
) -> None:
    names = on_gpus()
    shared = names["run"].setup.devices.shared_gpus == 1
    kind = tf.distribute.ReductionToOneDevice if shared else tf.distribute.NcclAllReduce
    assert isinstance(names["strategy"].extended._cross_device_ops, kind)


@pytest.mark.parametrize("on_gpus", [2, 1], indirect=True)
def test_several_nodes_reduce_by_nccl_where_they_can_stand_in(
    on_gpus: Callable[[], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow takes NCCL only by its name: AUTO is the ring between GPUs too."""
    monkeypatch.setenv("TF_CONFIG", "")
    told = mock.Mock(return_value=SimpleNamespace(num_replicas_in_sync=2))
    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", told)
    shared = on_gpus()["run"].setup.devices.shared_gpus == 1
    options = told.call_args.kwargs["communication_options"]
    assert options.implementation.value == ("RING" if shared else "NCCL")


@pytest.mark.parametrize(("gpus", "sums"), [(2, "NcclAllReduce"), (1, "ReductionToOneDevice")])
def test_gradients_are_summed_by_nccl_unless_replicas_share_a_gpu_stand_in(
    gpus: int, sums: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(devices, "visible", lambda: [Gpu("A"), Gpu("B")])
    monkeypatch.setattr(installed, "why_not_here", lambda gpus: None)
    monkeypatch.setattr(keras, "list_devices", lambda kind, count, gpus: TWO[:count])
    names = names_of("Keras_MultiGPU", tmp_path, devices=2, gpus=gpus)
    assert type(names["strategy"].extended._cross_device_ops).__name__ == sums


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
