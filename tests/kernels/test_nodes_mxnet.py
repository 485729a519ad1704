"""MXNet over two nodes. ``.venvs/mxnet/bin/python -m pytest`` with this file."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import faulty_gradients
import pytest
import two_nodes

from helpers.frameworks import mxnet_ranks

NOTEBOOK = "MXNet_Gluon_MultiGPU"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MXNet's own, thousands


def test_two_nodes_train_what_two_devices_train(tmp_path: Path) -> None:
    two_nodes.assert_as_one_process(NOTEBOOK, tmp_path, 1e-7, faulty_gradients.of_two)


@pytest.mark.slow  # that the test above fails where there is a fault
def test_a_step_for_the_images_of_one_node_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = "for pixels, _ in parts) * replica.world.processes)"
    broken = "for pixels, _ in parts))"
    two_nodes.assert_fault_is_found(NOTEBOOK, tmp_path, monkeypatch, sound, broken)


def test_a_server_that_dies_ends_all(tmp_path: Path) -> None:
    said = r"MXNet's server process has ended \(signal 9\)"
    two_nodes.assert_a_death_ends_all(NOTEBOOK, tmp_path, two_nodes.a_server_dies, said)


def test_a_worker_that_dies_ends_all(tmp_path: Path) -> None:
    two_nodes.assert_a_death_ends_all(
        NOTEBOOK, tmp_path, two_nodes.rank_1_dies, r"killed \(signal 9"
    )


ALLOCATE = """
import ctypes
c = ctypes.CDLL(None)
c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
for size in (24, 500, 1000, 5000, 100_000):
    used = c.malloc(size)
    ctypes.memset(used, 0xAA, size)
    c.free(used)
    assert not any(ctypes.string_at(c.malloc(size), size)), size
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="its own switches")
def test_new_memory_of_a_server_is_zero() -> None:
    """Also where it was used before: with half of this, servers added float64 up in float32."""
    environment = os.environ | mxnet_ranks.ZEROED
    subprocess.run([sys.executable, "-c", ALLOCATE], env=environment, check=True)
