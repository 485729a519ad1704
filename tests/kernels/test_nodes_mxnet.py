"""MXNet over two nodes. ``.venvs/mxnet/bin/python -m pytest`` with this file."""

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ranks_tools as tools
from nodes_tests import *
from notebook_program import fairness_check, names_of

from helpers import record
from helpers.fairness import process_checks
from helpers.frameworks import mxnet_ranks

NOTEBOOK = "MXNet_Gluon_MultiGPU"
GRADIENTS = "gradients, n devices / one"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MXNet's own, thousands


PLANTS = {
    "a step for the images of one node": (
        "weight change after 5 SGD steps",
        "update(len(pixels) * store.num_workers)",
        "update(len(pixels))",
    ),
    "no sharding": (
        process_checks.ONCE,
        "blocks[store.rank :: store.num_workers]",
        "blocks[0 :: store.num_workers]",
    ),
    "evaluation of one node's images": (
        process_checks.EVALUATED,
        "range(store.rank, len(split), store.num_workers)",
        "range(0, len(split), store.num_workers)",
    ),
    "scores of one node": (
        process_checks.EVALUATED,
        "over_machines(mx.nd.array(scores))",
        "mx.nd.array(scores)",
    ),
    "statistics of its own": (
        "validated with the statistics that are saved",
        "over_machines(sum(each), statistic.name) / world",
        "sum(each) / n",
    ),
}
"""By name: the row that notices it, what the notebook says, and what a wrong one would."""


@pytest.mark.slow  # that the steps are not those of one node where there is a fault
@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_over_nodes_is_found(name: str, tmp_path: Path) -> None:
    row, sound, broken = PLANTS[name]
    folder = prepare(tmp_path, "mxnet")
    on_ranks(NOTEBOOK, folder, "run", 2, 1, {sound: broken})
    rows = record.read(folder / "run")["fairness"]["checks"]
    assert row in {each["check"] for each in rows if each["verdict"] == "fail"}


def check_with(folder: str, fault: str) -> None:
    """On a rank: the rows that fail where the key-value store has a fault."""
    import mxnet as mx

    names = names_of(NOTEBOOK, Path(folder), **given(folder, 1))
    kind, rank = mx.kv.KVStoreBase.kv_registry[mxnet_ranks.KIND], names["run"].rank
    sound = kind.pushpull

    def faulty(self: Any, key: Any, value: Any, *args: Any, **named: Any) -> None:
        arrays = value if isinstance(value, list) else [value]
        own = [each.copy() for each in arrays]
        sound(self, key, value, *args, **named)
        for each, before in zip(arrays, own, strict=True):
            if fault == "a sum":
                each *= 2
            elif rank == 1:
                each[:] = before

    kind.pushpull = faulty
    found = fairness_check(names).checks
    tools.keep([check.check for check in found if check.verdict == "fail"])


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["a sum", "a rank without all-reduce"])
def test_a_store_that_adds_wrongly_is_found(fault: str, tmp_path: Path) -> None:
    (run := prepare(tmp_path, "mxnet") / "run").mkdir()
    cell = f"import test_nodes_mxnet as t\nt.check_with(*{(str(tmp_path), fault)!r})"
    first, _ = tools.run(run, cell, devices=1, framework="mxnet")
    assert GRADIENTS in first


def test_a_server_that_dies_ends_all(tmp_path: Path) -> None:
    said = r"MXNet's server process has ended \(signal 9\)"
    assert_ends_all(NOTEBOOK, tmp_path, 1, "its_server", said)


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
