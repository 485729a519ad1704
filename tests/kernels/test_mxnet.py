"""Runs in the mxnet environment: ``.venvs/mxnet/bin/python -m pytest`` with this file."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mxnet as mx
import numpy as np
import own_networks
import pytest
from notebook_cells import EPSILON_FIRST, write_noise_images
from notebook_program import Names, names_of
from program_tests import *

from helpers import paths
from helpers.fairness import reference
from helpers.frameworks import mxnet as framework
from helpers.networks import mxnet as networks
from helpers.training.step_clock import StepClock

# Three processes train; PyTorch and Chainer take it every day.
pytest.mark.slow(test_a_killed_run_of_ones_own_ends_with_the_weights_of_a_whole_one)

NOTEBOOK = "MXNet_Gluon_MultiGPU"
TWO = framework.list_devices("cpu", 2)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MXNet's own, thousands


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Names:
    """The notebook's names on two devices, before it trains."""
    return names_of(NOTEBOOK, tmp_path_factory.mktemp("run"), devices=2, batch_size=4)


def noise(names: Names, seed: int) -> Any:
    """A batch of the notebook's loader, of four images for each device."""
    random, side = np.random.default_rng(seed), names["run"].recipe.crop
    pixels = random.integers(0, 256, (8, side, side, 1), dtype=np.uint8)
    return framework.as_loaded(
        pixels, (random.random((8, 14)) < 0.3).astype(np.float32), np.arange(8)
    )


def shallow(names: Names) -> Any:
    """A replica of the shallow network."""
    return names["make_replica"](framework.shallow(reference.shallow_arrays(), TWO))


def test_nothing_in_a_step_waits_for_a_device(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only ``wait_to_read`` may, for what was queued four batches before."""
    replica, waited, queued = shallow(names), [], list[int]()
    sound, batch = names["train_step"], noise(names, 0)[:2]
    names["train_step"](replica, *batch)  # makes the optimiser's state

    def loops_own() -> bool:
        """Not in the clock's thread, which waits for each step."""
        return threading.current_thread() is threading.main_thread()

    def refuse(self: Any) -> None:
        if loops_own():
            raise AssertionError("a value was pulled to the host inside a step")

    def train_step(*given: Any) -> Any:
        with monkeypatch.context() as patch:
            for name in ("asnumpy", "asscalar", "wait_to_read"):
                patch.setattr(mx.nd.NDArray, name, refuse)
            losses = sound(*given)
        queued.extend(map(id, losses))
        return losses

    def wait(self: Any) -> None:
        if loops_own():
            waited.append((queued.index(id(self)), len(queued)))

    monkeypatch.setitem(names, "train_step", train_step)
    with monkeypatch.context() as patch:
        patch.setattr(mx.nd.NDArray, "wait_to_read", wait)
        names["train_steps"](replica, repeat((*batch, mx.nd.arange(8)), 10), 10)
    assert len(waited) == 6
    assert all(done - at > 4 * len(TWO) for at, done in waited)


def test_a_step_is_done_when_the_first_layer_has_its_weights(names: Names) -> None:
    """And nothing queued later is waited for."""
    replica = shallow(names)
    framework.watch(replica)
    names["train_step"](replica, *noise(names, 0)[:2])
    wait = framework.queued(TWO[0])
    assert wait is not None
    wait()
    with StepClock(framework.queued) as clock:
        for _ in range(3):
            names["train_step"](replica, *noise(names, 1)[:2])
            clock.queued(TWO[0])
    assert len(clock.step_seconds) == 2


def test_a_step_is_for_the_images_of_all_machines(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the machines: what the sum over three is divided by."""
    replica, sizes = shallow(names), list[int]()
    monkeypatch.setitem(names, "store", SimpleNamespace(num_workers=3, rank=0))
    monkeypatch.setattr(replica.optimizer, "allreduce_grads", lambda: None)
    monkeypatch.setattr(replica.optimizer, "update", sizes.append)
    names["train_step"](replica, *noise(names, 0)[:2])
    assert sizes == [3 * 8]


def test_an_error_that_only_the_clock_has_seen_ends_the_loop() -> None:
    """MXNet tells an error to the first thread that waits, and to no other."""
    with (
        pytest.raises(mx.MXNetError, match="scale parameter"),
        StepClock(lambda wrong: wrong.wait_to_read) as clock,
    ):
        clock.queued(mx.nd.random.normal(0, -1, (2, 2)) + 1)


def test_float32_is_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_float32_is_float32(framework.configure, monkeypatch)


def test_compiled_statistics_are_those_of_plain_python(tmp_path: Path) -> None:
    """`static_shape=True` fails here: MXNet spoils the running statistics on two devices."""
    code, found = own_networks.NETS["mxnet"].replace("Dropout(0.1", "Dropout(0.0"), []
    for execution in ("default", "eager"):
        folder = tmp_path / execution
        folder.mkdir()
        recipe = own_networks.recipe_of(folder / "recipe", "mxnet", code)
        given: dict[str, Any] = {"recipe": str(recipe), "batch_size": 4, "execution": execution}
        names = names_of(NOTEBOOK, folder, devices=2, **given)
        replica = names["make_replica"](names["build_model"]())
        assert replica.network._active == (execution == "default")
        for seed in range(2):
            names["train_step"](replica, *noise(names, seed)[:2])
        found.append(framework.dump_weights(replica.network))
    for name, expected in found[1].items():
        if "running" in name:
            np.testing.assert_allclose(found[0][name], expected, rtol=1e-3, atol=1e-5, err_msg=name)


@pytest.fixture(autouse=True)
def nothing_left_in_the_queue() -> Iterator[None]:
    yield
    mx.nd.waitall()


DROPPED = """
from helpers.runner.notebook_code import run_cells

given = {"recipe": "demo", "devices": 2, "data": DATA, "run": RUN}
names = run_cells(NOTEBOOK, until="## 4.", **given)
for _ in range(3):
    batches = iter(names["make_loader"](names["run"].train_split, True))
    next(batches)
    del batches
left = iter(names["make_loader"](names["run"].train_split, True))
next(left)
print("ends", flush=True)
"""


def test_a_loader_ends_while_its_workers_read(tmp_path: Path) -> None:
    """Processes that Gluon kills at work make a run hang; threads end."""
    data, run = str(write_noise_images(tmp_path)), str(tmp_path / "run")
    given = f"NOTEBOOK, DATA, RUN = {NOTEBOOK!r}, {data!r}, {run!r}\n"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", given + DROPPED],
        cwd=paths.ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.endswith("ends\n"), done.stderr


ADAPTER = OfPrograms(
    framework,
    networks,
    TWO,
    known=frozenset({STEP, "running variance after 5 SGD steps", EPSILON_FIRST}),
    notebooks=(NOTEBOOK,),
    seen=lambda names, pixels: names["to_network"](mx.nd.array(pixels, dtype="uint8")).asnumpy(),
    kept="the average of all replicas'",
)
