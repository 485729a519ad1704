"""TensorFlow and Keras on GPUs, as far as they go where only the hardware is missing.

Physical GPUs are put into TensorFlow's context, which then decides as it would on such a machine;
where the GPUs have to compute, CPU devices do. Runs in the tensorflow environment.
"""

import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import tensorflow as tf
from notebook_program import names_of
from tensorflow.python.eager import context

from helpers.fairness import reference
from helpers.frameworks import devices, keras, tensorflow, tensorflow_strategies
from helpers.frameworks.capabilities import Gpu

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
    tensorflow_strategies.note([])
    told = mock.Mock(side_effect=lambda *given: given, _collective_key_base=0)
    monkeypatch.setattr(tf.distribute, "MirroredStrategy", told)
    places, reduction = tensorflow_strategies.over(tensorflow.list_devices("gpu", 2))
    assert places == ["GPU:0", "GPU:1"]
    assert isinstance(reduction, tf.distribute.NcclAllReduce)


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two "GPUs", where CPU devices compute."""
    monkeypatch.setattr(devices, "visible", lambda: [Gpu("A"), Gpu("B")])
    monkeypatch.setattr(devices, "why_not_here", lambda gpus: None)
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


@pytest.mark.parametrize("module", MODULES)
def test_on_gpus_nothing_moves_to_the_cpu_but_what_python_notes_stand_in(module: str) -> None:
    """An operation without code for GPUs is an error: a CPU would compute it, and no one tell."""
    framework = MODULES[module]
    framework.configure("fp32", "gpu")
    assert not tf.config.get_soft_device_placement()
    framework.configure("fp32", "cpu")
    assert tf.config.get_soft_device_placement()
    model = framework.shallow(reference.shallow_arrays(), TWO)

    @tf.function(autograph=False)
    def on_gpu() -> tf.Tensor:
        with tf.device("GPU:0"):
            return model(tf.zeros((1, 32, 32, 3)), training=True)

    with framework.seen_by(model):
        graph = on_gpu.get_concrete_function().graph
    notes = [each.device for each in graph.get_operations() if each.type == "PyFunc"]
    assert [each.rpartition("/")[2] for each in notes] == ["device:CPU:0"]


def test_the_clock_waits_for_this_step_alone_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies that begin when the next step is queued would come after it."""
    interval, last = sys.getswitchinterval(), mock.Mock()  # whose copy to the host is noted
    monkeypatch.setattr(tensorflow.tf, "device", lambda device: nullcontext())
    monkeypatch.setattr(tensorflow.tf, "zeros", lambda shape: last)
    tensorflow._WAITING.submit(int).result()  # a thread that exists is not waited for
    sys.setswitchinterval(10.0)  # no thread takes its turn unless it is given it
    try:
        wait = tensorflow.queued("GPU:0")
        at_once = last.numpy.call_count
    finally:
        sys.setswitchinterval(interval)
    assert wait is not None
    wait()
    assert at_once == last.numpy.call_count == 1
