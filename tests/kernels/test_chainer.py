"""Runs in the chainer environment: ``.venvs/chainer/bin/python -m pytest`` with this file."""

import platform
import subprocess
import sys
from functools import partial
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from chainer.iterators import MultiprocessIterator
from notebook_program import Names, names_of
from program_tests import *

from helpers.errors import DataError
from helpers.frameworks import chainer as framework
from helpers.networks import chainer as networks
from helpers.training.notebook_recipe import Split

# Chainer is slow on CPUs; other frameworks take these tests every day.
pytest.mark.slow(test_resnet50_is_the_references)
pytest.mark.slow(test_it_trains_the_recipes_network)

NOTEBOOK = "Chainer_MultiGPU"
TWO = framework.list_devices("cpu", 2)


@pytest.fixture(scope="module", name="names")
def names_fixture(tmp_path_factory: pytest.TempPathFactory) -> Names:
    """The notebook's names for two devices, before it trains."""
    return names_of(NOTEBOOK, tmp_path_factory.mktemp("notebook"), devices=2)


def test_float32_is_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_float32_is_float32(framework.configure, monkeypatch)


def test_a_training_step_never_waits_for_the_device(names: Names) -> None:
    loss = mock.MagicMock()
    loss.__float__.side_effect = AssertionError("the loss was pulled to the host in the loop")
    for operation in (loss.__add__, loss.__radd__, loss.__mul__):
        operation.return_value = loss
    copies = [SimpleNamespace(loss=SimpleNamespace(array=loss)) for _ in TWO]
    updater = SimpleNamespace(update=lambda: None)
    queues = [SimpleNamespace(put=lambda block: None) for _ in TWO]
    replica = names["Replica"](None, copies, None, updater, queues)
    pixels, targets = np.zeros((4, 8, 8, 1), np.uint8), np.zeros((4, 14), np.float32)
    assert names["train_step"](replica, pixels, targets) is loss


def test_an_image_that_a_worker_cannot_read_ends_the_loader(names: Names) -> None:
    """Chainer would wait for ever: the thread that hands on batches has ended."""
    size = names["run"].recipe.batch_size * 2

    def read(i: int) -> np.ndarray:
        if i == 2 * size:
            raise DataError("this image ends too soon")
        return names["run"].train_split.read(0)

    targets = np.resize(names["run"].train_split.targets, (3 * size, 14))
    sound = names["MultiprocessIterator"]
    names["MultiprocessIterator"] = partial(MultiprocessIterator, dataset_timeout=1)
    framework.configure("fp32", "cpu")  # pytest has taken back that a warning is an error
    try:
        loader = iter(names["make_loader"](Split(range(3 * size), targets, read), False))
        assert len(next(loader)[0]) == len(next(loader)[0]) == size
        with pytest.raises(MultiprocessIterator.TimeoutWarning):
            next(loader)
    finally:
        names["MultiprocessIterator"] = sound


FILL_TWICE = """
import resource, sys
from helpers.frameworks import chainer
chainer.configure("fp32", sys.argv[1])
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = bytearray(b"1") * (1 << 26)
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_on_a_cpu_a_step_gets_the_memory_that_the_last_one_freed() -> None:
    """64 MiB have 16,384 pages of 4 KiB, or fewer larger ones."""

    def faults(kind: str) -> int:
        return int(subprocess.check_output([sys.executable, "-c", FILL_TWICE, kind], text=True))

    assert faults("gpu") > 1000 and faults("cpu") < 100


ADAPTER = OfPrograms(
    framework,
    networks,
    TWO,
    notebooks=(NOTEBOOK,),
    seen=lambda names, pixels: names["to_network"](pixels),
)
