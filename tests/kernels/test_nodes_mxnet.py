"""MXNet over two nodes. ``.venvs/mxnet/bin/python -m pytest`` with this file."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import own_networks
import pytest
import ranks_tools as tools
import two_nodes
from notebook_cells import write_different_images
from notebook_program import CHECK, Names, fairness_check

from helpers import record
from helpers.fairness import process_checks
from helpers.frameworks import mxnet_ranks
from helpers.launch.failures import RankError
from helpers.networks import weights
from helpers.runner.notebook_code import run_cells

NOTEBOOK = "MXNet_Gluon_MultiGPU"
GRADIENTS = "gradients, n devices / one"
SOUND: Mapping[str, str] = {}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MXNet's own, thousands


@pytest.fixture(name="folder")
def folder_fixture(tmp_path: Path) -> Path:
    """Images, and a recipe of a small network that draws nothing while it trains."""
    write_different_images(tmp_path, ".png")
    code = own_networks.NETS["mxnet"].replace("Dropout(0.1)", "Dropout(0.0)")
    own_networks.recipe_of(tmp_path / "recipe", "mxnet", code)
    return tmp_path


def cells(folder: str, devices: int, until: str, texts: Mapping[str, str] = SOUND) -> Names:
    """The notebook's names before a cell, here or on a rank; with other texts for some."""

    def changed(text: str) -> str:
        for sound, broken in texts.items():
            text = text.replace(sound, broken)
        return text.replace("run.measure(", "dict(")

    given: dict[str, Any] = {"data": f"{folder}/different.png", "devices": devices}
    given |= {"recipe": f"{folder}/recipe/mine.toml", "epochs": 2, "num_workers": 1}
    return run_cells(NOTEBOOK, until=until, changed=changed, run=f"{folder}/run-{devices}", **given)


def on_two_nodes(folder: Path, function: str, *args: Any) -> list[Any]:
    """What a function of this module keeps on each rank."""
    (folder / "run-1").mkdir()
    cell = f"import test_nodes_mxnet as t\nt.{function}(*{(str(folder), *args)!r})"
    return tools.run(folder / "run-1", cell, devices=1, framework="mxnet")


def train(folder: str, texts: Mapping[str, str] = SOUND) -> None:
    cells(folder, 1, "run.chart()", texts)


def test_two_nodes_take_the_steps_of_one(folder: Path) -> None:
    on_two_nodes(folder, "train")
    cells(str(folder), 2, "run.chart()")
    found, one = (record.read(folder / f"run-{devices}") for devices in (1, 2))
    for ours, theirs in zip(found["epochs"], one["epochs"], strict=True):
        for figure in ("train_loss", "valid_loss", "learning_rate"):
            assert ours[figure] == pytest.approx(theirs[figure], abs=1e-6)
    each, expected = (
        weights.load(folder / f"run-{devices}" / "weights.safetensors") for devices in (1, 2)
    )
    for name, array in expected.items():
        np.testing.assert_allclose(each[name], array, rtol=0, atol=1e-6, err_msg=name)
    assert found["cluster"]["nodes"] == 2 and "cluster" not in one
    assert found["devices"]["count"] == 2
    rows = {row["check"]: row for row in found["fairness"]["checks"]}
    assert not [row for row in rows.values() if row["verdict"] in ("fail", "different")]
    assert rows[process_checks.JOINED]["reason"] == "2 processes, 2 devices, 1 host"
    assert rows[GRADIENTS]["verdict"] == "pass"


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
        "range(store.rank, len(part), store.num_workers)",
        "range(0, len(part), store.num_workers)",
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


@pytest.mark.slow  # that the test above fails where there is a fault
@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_over_nodes_is_found(name: str, folder: Path) -> None:
    row, sound, broken = PLANTS[name]
    on_two_nodes(folder, "train", {sound: broken})
    rows = record.read(folder / "run-1")["fairness"]["checks"]
    assert row in {each["check"] for each in rows if each["verdict"] == "fail"}


def check_with(folder: str, fault: str) -> None:
    """On a rank: the rows that fail where the key-value store has a fault."""
    import mxnet as mx

    names = cells(folder, 1, CHECK)
    kind, rank = mx.kv.KVStoreBase.kv_registry[mxnet_ranks.KIND], names["run"].rank
    sound = kind.pushpull

    def faulty(self: Any, key: Any, value: Any, *args: Any) -> None:
        arrays = value if isinstance(value, list) else [value]
        own = [each.copy() for each in arrays]
        sound(self, key, value, *args)
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
def test_a_store_that_adds_wrongly_is_found(fault: str, folder: Path) -> None:
    first, _ = on_two_nodes(folder, "check_with", fault)
    assert GRADIENTS in first


def talk(folder: str, victims: str) -> None:
    """On a rank: compute with the other one for ever; after two seconds rank 1 kills some."""
    run = cells(folder, 1, CHECK)["run"]
    run.framework.slowest(0.0, run.own_devices)
    (run.folder / f"talks-{run.rank}").touch()
    if run.rank == 1:
        Timer(2, two_nodes.kill, [getattr(two_nodes, victims)]).start()
    while True:
        run.framework.slowest(0.0, run.own_devices)


@pytest.mark.parametrize(
    ("victims", "said"),
    [
        ("its_server", r"MXNet's server process has ended \(signal 9\)"),
        ("itself", r"killed \(signal 9"),
    ],
)
def test_a_death_ends_all(victims: str, said: str, folder: Path) -> None:
    """All ranks and what they have started, soon, with a line that tells it."""
    with pytest.raises(RankError, match=f"^rank 1 on .*{said}"):
        on_two_nodes(folder, "talk", victims)
    ended = time.time()
    talked = [folder / "run-1" / f"talks-{rank}" for rank in range(2)]
    assert ended - max(path.stat().st_mtime for path in talked) < 2 + two_nodes.END_SECONDS
    assert tools.nothing_is_left(folder, 1)


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
