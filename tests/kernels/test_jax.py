"""Runs in the jax environment: ``.venvs/jax/bin/python -m pytest`` with this file."""

import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import own_networks
import pytest
from notebook_cells import failed
from notebook_program import Names, fairness_check, names_of, own_names
from program_tests import *

from helpers.fairness import reference
from helpers.fairness.kept_statistics import AVERAGE
from helpers.frameworks import jax as framework
from helpers.networks import jax as networks

# Compiling takes most of their time; other frameworks take these tests every day.
pytest.mark.slow(test_resnet50_is_the_references)
pytest.mark.slow(test_it_trains_the_recipes_network)
pytest.mark.slow(test_adam_continues_where_it_was)
pytest.mark.slow(test_a_killed_run_of_ones_own_ends_with_the_weights_of_a_whole_one)

NOTEBOOK = "JAX_MultiGPU"
TWO = framework.list_devices("cpu", 2)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Names:
    """The notebook's names on two devices, before it trains; nothing is compiled yet."""
    return own_names(NOTEBOOK, tmp_path_factory.mktemp("notebook"), devices=2, batch_size=2)


@pytest.mark.slow  # TensorFlow is checked in bf16 every day
def test_the_check_is_passed_in_16_bits(tmp_path: Path) -> None:
    found = fairness_check(own_names(NOTEBOOK, tmp_path, devices=2, precision="bf16"))
    assert failed(found.checks) == set() and found.comparable


def test_stand_in_float64_is_computed_on_the_cpu_beside_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """XLA cannot compile anything for this GPU."""
    images, targets = np.ones((2, 3, 32, 32), np.float32), np.ones((2, 14), np.float32)

    def answers() -> list[np.ndarray]:
        shallow = partial(framework.shallow, devices=[])
        model = framework.exact(shallow, reference.shallow_arrays())
        loss, found = framework.gradients(model, images, targets, framework.jax_ranks.HELD[:1])
        output = framework.logits(model, images)
        return [np.array(loss), *found.values(), output, framework.train_forward(model, images)[0]]

    known = answers()
    monkeypatch.setattr(framework.jax_ranks, "HELD", [SimpleNamespace(platform="gpu")])
    for on_cpu, beside in zip(known, answers(), strict=True):
        assert beside.dtype == np.float64 and np.allclose(on_cpu, beside, rtol=1e-12)


def test_stand_in_a_gpus_memory_is_nearly_all_for_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX keeps a quarter free, and the same batch would not fit."""
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "")  # so that it is taken back
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION")
    monkeypatch.setattr(framework.jax_ranks, "HELD", [])
    gpus = ["GPU 0", "GPU 1"]
    config = SimpleNamespace(update=lambda *given: None)
    monkeypatch.setattr(
        framework, "jax", SimpleNamespace(config=config, local_devices=lambda backend: gpus)
    )
    assert framework.list_devices("gpu", 1) == gpus[:1]
    assert 0.9 <= float(os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"]) < 1


def test_a_queued_step_is_waited_for_and_not_a_later_one(cells: Names) -> None:
    """CPU devices compute in any order, so a number that comes later is not what was queued."""

    def step(array: jax.Array) -> jax.Array:
        for _ in range(100):
            array = jnp.sin(array @ array)
        return array.sum()

    compiled, square = jax.jit(step), jnp.ones((600, 600))
    compiled(square).block_until_ready()
    began = time.monotonic()
    compiled(square).block_until_ready()
    moment = (time.monotonic() - began) / 4
    loss = compiled(square)
    wait = framework.queued(TWO[0])
    later = compiled(square)
    if wait is not None:
        wait()
    waited = time.monotonic()
    while not loss.is_ready():  # XLA marks a number a moment after what is computed of it has begun
        assert time.monotonic() - waited < moment
    later.block_until_ready()
    framework.synchronize(TWO)
    assert framework.queued(TWO[0]) is None, "nothing is queued"


def test_each_device_has_its_block_of_a_batch(cells: Names) -> None:
    pixels, _, numbers = next(iter(cells["make_loader"](cells["run"].train_split, True)))
    assert [shard.device for shard in pixels.addressable_shards] == TWO
    order = np.random.default_rng([cells["r"].seed, 0]).permutation(len(cells["run"].train_split))
    blocks = [np.asarray(shard.data).tolist() for shard in numbers.addressable_shards]
    assert blocks == order[:4].reshape(2, 2).tolist()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_training_step_never_waits_for_the_device(
    precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an epoch reads on the host does not grow with its steps."""
    monkeypatch.setattr(framework, "queued", lambda device: None)  # its clock waits now and then
    read = list[Any]()
    array = type(jnp.zeros(1))
    for name in ("__float__", "__bool__", "__index__", "block_until_ready", "__array__", "item"):
        monkeypatch.setattr(array, name, noted(read, getattr(array, name)))
    names = own_names(NOTEBOOK, tmp_path, devices=2, precision=precision)
    replica, batch = shallow_replica(names), noise(names)
    found = []
    for steps in (1, 1, 3):  # the first compiles
        read.clear()
        names["train_steps"](replica, repeat(batch, steps), steps)
        found.append(len(read))
    assert found[1] == found[2] > 0


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root raises a thread's priority again")
def test_launches_far_ahead_leave_a_thread_to_each_device(tmp_path: Path) -> None:
    """On a busy machine, whose threads take turns in any order; devices that wait end it."""
    names, ended = own_names(NOTEBOOK, tmp_path, devices=2), Event()
    replica = names["make_replica"](names["build_model"]())
    batch = next(iter(names["make_loader"](names["run"].train_split, True)))
    draw = random.Random(0)

    def prioritise(niceness: list[int]) -> None:
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), draw.choice(niceness))

    def disturb() -> None:
        while not ended.wait(draw.choice([0.01, 0.05, 0.2])):
            prioritise([0, 0, 19])
        prioritise([0])

    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
    disturber = Thread(target=disturb)
    disturber.start()
    until = time.monotonic() + 90
    try:
        while time.monotonic() < until:
            names["train_steps"](replica, repeat(batch, 10), 10)
    finally:
        ended.set()
        disturber.join()
        for process in busy:
            process.kill()
            process.wait()


def noted(read: list[Any], function: Any) -> Any:
    """The same function of an array, and a note of each call."""

    def noting(array: Any, *given: Any, **more: Any) -> Any:
        read.append(array)
        return function(array, *given, **more)

    return noting


def test_the_state_is_donated(cells: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    """One copy on each device: a step writes the new state in the old one's place."""
    given, step = [], cells["train_step"]

    def noting(graph: Any, state: Any, *batch: Any) -> Any:
        given.append(state)
        return step(graph, state, *batch)

    monkeypatch.setitem(cells, "train_step", noting)
    cells["train_steps"](shallow_replica(cells), repeat(noise(cells), 3), 3)
    assert all(array.is_deleted() for state in given[1:] for array in jax.tree.leaves(state))


def test_a_step_is_compiled_once(cells: Names) -> None:
    """On files and on synthetic batches, after a checkpoint, whatever the rate."""
    step, evaluate = cells["train_step"], cells["evaluate_step"]
    replica, split = shallow_replica(cells), cells["run"].valid_split
    loader = cells["make_loader"](cells["run"].train_split, True)
    before = step._cache_size(), evaluate._cache_size()
    state = framework.dump_optimizer(replica)
    for batches in (islice(loader, 2), repeat(next(iter(loader)), 2)):
        framework.load_optimizer(replica, state, 3)
        cells["train_steps"](replica, batches, 2)
        cells["predict"](replica, cells["make_loader"](split, False), len(split))
    assert (step._cache_size(), evaluate._cache_size()) == (before[0] + 1, before[1] + 1)


def test_float32_is_float32() -> None:
    framework.configure("tf32", "gpu")
    assert jax.config.jax_default_matmul_precision == "tensorfloat32"
    framework.configure("fp32", "cpu")
    assert jax.config.jax_default_matmul_precision == "float32"


DRAWS = """
import jax
import jax.numpy as jnp
from flax import nnx


class Net(nnx.Module):
    def __init__(self, outputs):
        self.rngs, self.head = nnx.Rngs(0), nnx.Linear(3, outputs, rngs=nnx.Rngs(1))
        self.once, self.squared = nnx.BatchStat(jnp.zeros(1)), nnx.BatchStat(jnp.zeros(1))

    def __call__(self, x):
        drawn = jax.random.uniform(self.rngs.dropout(), (1,))
        self.once[...], self.squared[...] = drawn, drawn**2
        return self.head(x.mean((1, 2)))


def net(outputs):
    return Net(outputs)
"""
"""A network that keeps the mean over the replicas of what each drew, and of its square."""


def test_each_replica_draws_its_own_numbers(tmp_path: Path) -> None:
    """Dropout's; and others in each step."""
    recipe = own_networks.recipe_of(tmp_path / "recipe", "jax", DRAWS)
    names = names_of(NOTEBOOK, tmp_path, devices=2, recipe=str(recipe))
    replica = names["make_replica"](names["build_model"]())
    batch, means = noise(names), []
    for _ in range(2):
        names["train_steps"](replica, [batch], 1)
        held = framework.dump_weights(replica.network)
        means.append(held["once"].item())
        assert (held["squared"] - held["once"] ** 2).item() > 1e-6
    assert means[0] != means[1]


def shallow_replica(names: Names) -> Any:
    """What the notebook makes of a shallow network."""
    return names["make_replica"](framework.shallow(reference.shallow_arrays(), TWO))


def noise(names: Names) -> Any:
    """A batch of two images for each device, on the devices."""
    crop = names["r"].crop
    grey = np.random.default_rng(0).integers(0, 256, (4, crop, crop, 1), dtype=np.uint8)
    return framework.as_loaded(grey, np.zeros((4, 14), np.float32), np.arange(4))


def seen(names: Names, pixels: np.ndarray) -> np.ndarray:
    return np.asarray(names["to_network"](jnp.asarray(pixels))).transpose(0, 3, 1, 2)


ADAPTER = OfPrograms(
    framework,
    networks,
    TWO,
    known=frozenset({STEP, "running variance after 5 SGD steps"}),  # Flax keeps the biased one
    notebooks=(NOTEBOOK,),
    seen=seen,
    kept=AVERAGE,
)
