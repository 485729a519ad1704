"""Runs in the jax environment: ``.venvs/jax/bin/python -m pytest`` with this file."""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import copied
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rules
import same_networks
from adapter import *
from adapter import Adapter
from agreed import (
    assert_half_are_flipped,
    assert_later_epochs_are_the_same,
    ramp,
    steps_of,
)
from coverage_checks import failed_in_data_coverage
from notebook_cells import (
    CHECKED,
    adam,
    failed,
    failed_in_training_loop,
    namespace_of,
)

from helpers.errors import UserError
from helpers.fairness import process_checks, reference, training_loop
from helpers.frameworks import jax as framework
from helpers.frameworks import switches
from helpers.networks import jax as networks
from helpers.networks import weights
from helpers.recipe import Rule
from helpers.training import image_data
from helpers.training.step_clock import StepClock
from helpers.training.world import World

sys.path.append(str(Path(__file__).resolve().parents[1] / "gpu"))

import test_gpu as on_gpu

NOTEBOOK = "JAX_MultiGPU"
TWO = framework.list_devices("cpu", 2)
BIASED = "running variance after a step", "running variance after 5 SGD steps"
"""What differs for a known reason: Flax keeps the biased variance."""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The notebook's names on two virtual devices, before it trains."""
    folder = tmp_path_factory.mktemp("notebook")
    return namespace_of(NOTEBOOK, folder, devices=2, until=CHECKED)


def test_weights_come_back_bit_for_bit(cells: dict[str, Any]) -> None:
    initial = weights.canonical("random", seed=0)
    assert weights.digest(framework.dump_weights(cells["model"])) == initial.sha256


def test_flags_for_xla_are_the_users_own_where_there_are_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=3")
    framework.list_devices("cpu", 1)
    assert os.environ["XLA_FLAGS"] == "--xla_backend_optimization_level=3"
    monkeypatch.delenv("XLA_FLAGS")
    for _ in range(2):  # as by two runs of a cell: other flags, and XLA compiles anew
        framework.list_devices("cpu", 1)
        assert os.environ["XLA_FLAGS"] == framework.LESS_OPTIMISED


def test_faults_in_the_world_are_caught(cells: dict[str, Any]) -> None:
    """No reshuffle, and an evaluation whose loss counts what fills up the last batch."""
    fixed = "own.repeat()", "own.repeat(reseed_each_epoch=False)"
    assert failed_in_data_coverage(cells, NOTEBOOK, *fixed) == {process_checks.ORDER}
    cut = "(exchange.in_order(part, total) for part in own)\n    return output,"
    padded = "own\n    return output[:total],"
    assert failed_in_data_coverage(cells, NOTEBOOK, cut, padded) == {process_checks.LOSS}


def test_a_stride_in_the_wrong_convolution_is_caught() -> None:
    """The image is halved in Caffe's convolution, a block's first. The weights fit."""
    sound = 'convolution(channels, width, 1), "bn1"', "convolution(width, width, 3, stride)"
    wrong = 'convolution(channels, width, 1, stride), "bn1"', "convolution(width, width, 3)"
    broken = same_networks.with_text(networks, *zip(sound, wrong, strict=True))
    same_networks.assert_caught(framework, broken, "resnet50", TWO[:1])


def test_a_sum_in_place_of_a_mean_is_caught(cells: dict[str, Any]) -> None:
    wrong = "jax.lax.pmean(gradient", "jax.lax.psum(gradient"
    found = failed_in_training_loop(cells, NOTEBOOK, *wrong)
    assert "weight change after 5 SGD steps" in found


def test_statistics_of_the_global_batch_are_seen(cells: dict[str, Any]) -> None:
    """The form that is taught beside: the fairness check names it."""
    cells["norm_over"] = "replica"
    run = cells["this_run"]
    before = run.fairness_check
    run.check_training_loop(**vars(run.functions))
    reasons = {check.check: check.reason for check in run.fairness_check.checks}
    cells["norm_over"], run.fairness_check = None, before
    assert reasons["which replica's running statistics are kept"] == training_loop.GLOBAL


def test_the_notebooks_adam_is_pytorchs(cells: dict[str, Any]) -> None:
    """Gradients so small that it shows where epsilon is added."""
    gradients = [np.array([1e-7, -3e-8, 0.5], np.float32) * n for n in (1, 2)]
    rule = cells["make_optimizer"](cells["model"], Rule("adam")).rule
    weight = jnp.ones(3)
    state = rule.init(weight)
    for gradient in gradients:
        change, state = rule.update(jnp.array(gradient), state, weight)
        weight = weight - cells["scaled"].learning_rate * change
    assert np.allclose(weight, adam(gradients, cells["scaled"]), atol=1e-7)


def test_devices_and_versions() -> None:
    assert [device.id for device in TWO] == [0, 1]
    assert framework.list_devices("cpu", 1) == TWO[:1]
    with pytest.raises(RuntimeError):
        framework.list_devices("cpu", 9)
    assert framework.versions()["jax"] == jax.__version__
    framework.synchronize(TWO)
    assert framework.SKIPPED.get("virtual devices") is None


@pytest.mark.parametrize(
    ("plugin", "cuda"), [("jax-cuda12-plugin", "12.9"), ("jax-cuda13-plugin", "13.5"), ("", None)]
)
def test_stand_in_a_record_names_the_cuda_that_jax_loads(
    plugin: str, cuda: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not what is there for PyTorch; JAX's own NCCL may be missing, for one device."""
    packages = {"nvidia-cuda-runtime": "13.5", "nvidia-cuda-runtime-cu12": "12.9"}
    packages |= {"nvidia-cudnn-cu13": "9.1", "nvidia-cudnn-cu12": "9.0", plugin: "0.11"}
    version = framework.metadata.version

    def of(package: str) -> str:
        return packages.get(package) or version(package)

    monkeypatch.setattr(framework.metadata, "version", of)
    found = framework.versions()
    assert found.get("cuda") == cuda and "nccl" not in found
    assert found.get("cudnn") == {"12.9": "9.0", "13.5": "9.1", None: None}[cuda]


@pytest.mark.parametrize("holds", [True, False])
def test_stand_in_a_recorded_peak_is_no_pool(holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The array stays on the CPU; a GPU tells of 512 MiB, or of nearly all that XLA holds."""
    stats = {"peak_bytes_in_use": 2**29 if holds else 58 * 2**30, "bytes_limit": 59 * 2**30}
    gpu = SimpleNamespace(memory_stats=lambda: stats)
    monkeypatch.setattr(framework, "list_devices", lambda kind, number: [gpu])
    monkeypatch.setattr(jax, "device_put", lambda array, device: array)
    with nullcontext() if holds else pytest.raises(AssertionError):
        on_gpu.test_jax_records_the_memory_that_it_uses()
    if holds:  # but for a variable that the notebook does not set
        monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        with pytest.raises(AssertionError):
            on_gpu.test_jax_records_the_memory_that_it_uses()


def test_stand_in_the_memory_in_use_is_that_of_the_fullest_gpu() -> None:
    gpus = [SimpleNamespace(memory_stats=lambda n=n: {"peak_bytes_in_use": n}) for n in (3, 5)]
    assert framework.peak_bytes(gpus) == 5
    assert framework.peak_bytes(TWO) is None, "CPU devices have no pool"


@pytest.mark.parametrize("holds", [True, False])
def test_products_have_the_precision_that_was_asked_for(
    holds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 16 bits, as a GPU with TF32 nearly does, they have not."""
    if not holds:
        exact = on_gpu.PRODUCTS["jax"]
        monkeypatch.setitem(
            on_gpu.PRODUCTS,
            "jax",
            lambda left, *rest: exact(left.astype(np.float16).astype(np.float32), *rest),
        )
    with nullcontext() if holds else pytest.raises(AssertionError):
        on_gpu.products("jax", "cpu")


def test_two_replicas_cannot_share_a_gpu() -> None:
    with pytest.raises(UserError, match="2 replicas on 1 GPU: a mesh"):
        framework.list_devices("gpu", 2, 1)


def test_a_step_is_waited_for_alone() -> None:
    """What is ready is not waited for, and what is not can be waited for in another thread."""
    assert framework.completion(jnp.zeros(3).block_until_ready()) is None
    array = jnp.ones((600, 600))
    for _ in range(20):
        array = array @ array / 600
    wait = framework.completion(array)
    if wait is not None:
        wait()
    assert array.is_ready()


def test_no_two_images_draw_the_same_crop(cells: dict[str, Any]) -> None:
    """The notebook's own loader on equal images, of which every crop is different."""
    first = crops(cells, seed=0)
    assert np.array_equal(first, crops(cells, seed=0)), "the same seed must give the same run"
    assert not np.array_equal(first, crops(cells, seed=1))
    assert len(np.unique(first, axis=0)) > 0.6 * len(first)


def test_a_run_that_begins_with_a_later_epoch_sees_the_same(cells: dict[str, Any]) -> None:
    assert_later_epochs_are_the_same(cells, partial(batches, cells))


def test_half_of_the_images_are_flipped(cells: dict[str, Any]) -> None:
    lots, grey = np.random.default_rng(0).random((200, 3)), ramp(cells["crop"])
    assert_half_are_flipped(cells["train_transform"](grey, lot) for lot in lots)


def test_closed_batches_leave_no_worker(cells: dict[str, Any]) -> None:
    batches = cells["make_train_loader"](world(cells), 0, 2)
    with closing(batches) as stream:
        assert len(next(stream)[0]) == cells["scaled"].global_batch_size
        assert readers()
    for thread in readers():
        thread.join(60)
    assert not readers()


def test_every_image_is_evaluated_once(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    part = cells["images"].train.iloc[:130]  # two images into a second batch of 128
    numbered = np.arange(len(part), dtype=np.float32)[:, None].repeat(14, axis=1)
    monkeypatch.setattr(image_data.Data, "targets", lambda images, part: numbered)
    loader = cells["make_evaluation_loader"](world(cells), part, 2)
    found = []
    for _, targets in loader:
        shares = cells["on_each"](targets)
        assert [len(share) for share in shares] == [64, 64], "a fixed shape: one program"
        found.append(np.asarray(targets))
    assert np.array_equal(np.concatenate(found)[: len(part)], numbered)
    logits, loss = cells["predict"](shallow_replica(cells), iter(loader), len(part))
    assert logits.shape == (len(part), 14)
    expected = (np.logaddexp(0, logits) - numbered * logits).mean()
    assert loss == pytest.approx(expected, rel=1e-5), "what fills the last batch does not count"


def test_an_evaluation_is_read_before_it_is_asked_for(
    cells: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``iter`` of its loader does not wait, and begins."""
    asked, may_continue = threading.Event(), threading.Event()
    read = image_data.Data.read

    def slow(images: Any, row: int) -> np.ndarray:
        asked.set()
        assert may_continue.wait(60)
        return read(images, row)

    monkeypatch.setattr(image_data.Data, "read", slow)
    part = cells["images"].valid
    batches = iter(cells["make_evaluation_loader"](world(cells), part, 2))
    assert asked.wait(60)
    may_continue.set()
    assert len(list(batches)) == -(-len(part) // cells["scaled"].global_batch_size)


@pytest.mark.parametrize("precision", [pytest.param("bf16", marks=pytest.mark.slow), "fp16"])
def test_the_training_loop_check_is_passed_in_16_bits(tmp_path: Path, precision: str) -> None:
    """The training-loop check alone: no row before it is computed in the run's precision."""
    lower = namespace_of(
        NOTEBOOK, tmp_path, devices=2, until=CHECKED, checked=False, precision=precision
    )
    run = lower["this_run"]
    run.check_training_loop(**vars(run.functions))
    assert run.fairness_check.checks and failed(run.fairness_check.checks) == set()
    shallow = framework.shallow(reference.shallow_arrays(), TWO)
    shallow.eval()  # in training BatchNorm would set variables from inside the trace
    features = jax.eval_shape(shallow.features, jnp.zeros((2, 32, 32, 3), lower["compute"]))
    assert features.dtype == lower["compute"] and features.dtype.itemsize == 2


def test_a_step_that_overflows_is_left_out(tmp_path: Path) -> None:
    names = namespace_of(
        NOTEBOOK, tmp_path, devices=2, until=CHECKED, checked=False, precision="fp16"
    )
    replica = shallow_replica(names)
    replica.optimizer.scale = jnp.array(2.0**120)
    before = framework.dump_weights(replica.network)
    with StepClock(framework.completion) as clock:
        names["train_epoch"](replica, noise(names), 1, clock)
    assert float(replica.optimizer.scale) == 2.0**119
    assert framework.dump_optimizer(replica.network, replica.optimizer)["step"] == 0
    after = framework.dump_weights(replica.network)
    assert np.array_equal(after["classifier.weight"], before["classifier.weight"])


def test_adam_is_where_it_was(cells: dict[str, Any]) -> None:
    replica = shallow_replica(cells)
    network, optimizer = replica.network, replica.optimizer
    framework.load_optimizer(network, optimizer, {})
    with StepClock(framework.completion) as clock:
        cells["train_epoch"](replica, noise(cells), 2, clock)
    optimizer.scale = jnp.array(8.0)
    state = framework.dump_optimizer(network, optimizer)
    assert state["step"] == 2 and state["scale"] == 8
    assert len(state) == 2 + 2 * 5
    assert state["first/features.conv0.weight"].shape == (64, 3, 7, 7)
    again = shallow_replica(cells)
    framework.load_optimizer(again.network, again.optimizer, state)
    found = framework.dump_optimizer(again.network, again.optimizer)
    assert found.keys() == state.keys()
    assert all(np.array_equal(found[name], state[name]) for name in state)
    assert np.abs(state["second/features.conv0.weight"]).max() > 0


def test_the_state_is_donated_and_lies_where_it_lay(cells: dict[str, Any]) -> None:
    """One copy on each device: a step writes the new state in the old one's place."""
    replica, given = shallow_replica(cells), []
    of = replica.train_step

    def noted(graph: Any) -> Any:
        def step(state: Any, *rest: Any) -> Any:
            given.append(state)
            return of(graph)(state, *rest)

        return step

    replica.train_step = noted
    with StepClock(framework.completion) as clock:
        cells["train_epoch"](replica, noise(cells), 3, clock)
    assert all(array.is_deleted() for state in given[1:] for array in jax.tree.leaves(state))
    norms = jax.tree.leaves(given[0].norms)
    assert {array.sharding.spec for array in norms} == {jax.P("replica")}


def test_no_run_has_programs_of_earlier_ones(tmp_path: Path) -> None:
    """Else a first step would depend on them. A user may want that, and the report says it."""
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    framework.configure("fp32", "cpu")
    assert jax.config.jax_compilation_cache_dir is None
    assert switches.COMPILED_HERE in switches.on(None, False)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))  # as the variable does
    try:
        assert switches.KEPT in switches.on(None, False)
    finally:
        jax.config.update("jax_compilation_cache_dir", None)


def test_a_step_is_compiled_once(cells: dict[str, Any]) -> None:
    """On files and on synthetic batches, again and again, whatever the rate."""
    replica, batch = shallow_replica(cells), cells["scaled"].recipe.batch_size
    files = cells["make_train_loader"](world(cells), 0, 2)
    fixed = cells["make_fixed_loader"](world(cells), shares(cells, batch))
    of, steps = replica.train_step, set()

    def noted(graph: Any) -> Any:
        steps.add(of(graph))
        return of(graph)

    replica.train_step = noted
    for loader in (files, fixed, files):
        replica.rates = iter([0.1, 0.01])
        with StepClock(framework.completion) as clock:
            cells["train_epoch"](replica, loader, 2, clock)
    (step,) = steps
    assert step._cache_size() == 1


def test_tf32_is_refused_where_there_are_no_tensor_cores() -> None:
    with pytest.raises(UserError, match="tensor cores"):
        framework.configure("tf32", "cpu")


def test_float32_is_float32() -> None:
    framework.configure("tf32", "gpu")
    assert jax.config.jax_default_matmul_precision == "tensorfloat32"
    framework.configure("fp32", "cpu")
    assert jax.config.jax_default_matmul_precision == "float32"


@pytest.mark.slow  # the loss of findings is caught every day
def test_a_wrong_loss_of_classes_is_caught(tmp_path: Path) -> None:
    def one_hot_sigmoids(sound: Any) -> Any:
        def criterion(output: Any, targets: Any) -> Any:
            hot = jax.nn.one_hot(targets, 14)
            return (jnp.logaddexp(0, output) - hot * output).mean(axis=1)

        return criterion

    rules.assert_wrong_losses_of_classes_are_caught(
        NOTEBOOK,
        tmp_path,
        sigmoids=one_hot_sigmoids,
        a_sum=lambda sound: lambda output, targets: sound(output, targets).sum()[None],
    )


def test_each_replica_draws_its_own_numbers(cells: dict[str, Any]) -> None:
    """Dropout's; BatchNorm's statistics are the same, until a step has changed them."""
    norms = {"key": jax.random.key(0), "keys": jax.random.split(jax.random.key(1), 3)}
    found = cells["for_each"]({**norms, "mean": jnp.arange(3.0)})
    for name, key in norms.items():
        draws = jax.vmap(lambda one: jax.random.bits(one, (4,)))(found[name].ravel())
        assert found[name].shape == (2, *key.shape) and len(np.unique(draws)) == draws.size
    assert found["mean"].tolist() == [[0.0, 1.0, 2.0]] * 2


def world(names: dict[str, Any]) -> World:
    """That of the notebook's one process."""
    run = names["this_run"]
    return World(0, len(run.devices), run.devices, run.setup.devices.kind)


def shallow_replica(names: dict[str, Any]) -> Any:
    """What the notebook starts for a shallow network."""
    run = names["this_run"]
    return names["start"](world(names), framework.shallow(reference.shallow_arrays(), run.devices))


def shares(names: dict[str, Any], size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """``size`` images of noise for each of two devices."""
    crop = names["crop"]
    grey = np.random.default_rng(0).integers(0, 256, (size, crop, crop, 1), dtype=np.uint8)
    return [(grey, np.zeros((size, 14), np.float32))] * 2


def noise(names: dict[str, Any]) -> Iterator[Any]:
    """Two images for each device, again and again."""
    batches: Iterator[Any] = names["make_fixed_loader"](world(names), shares(names, 2))
    return batches


def batches(
    names: dict[str, Any], count: int, *, epoch: int = 0, workers: int = 2
) -> list[tuple[np.ndarray, ...]]:
    """The first training batches of a loader that begins with an epoch."""
    loader = names["make_train_loader"](world(names), epoch, workers)
    return [tuple(map(np.asarray, batch)) for batch in islice(loader, count)]


def crops(names: dict[str, Any], seed: int) -> np.ndarray:
    """Corner pixels of all crops of two epochs."""
    scaled = names["scaled"]
    names["scaled"] = replace(scaled, recipe=replace(scaled.recipe, seed=seed))
    try:
        found = batches(names, 2 * steps_of(names))
    finally:
        names["scaled"] = scaled
    return np.concatenate([grey[:, 0, :4, 0] for grey, _ in found])


def evaluated(names: dict[str, Any], part: Any) -> tuple[np.ndarray, ...]:
    """Pixels and targets of all images of a part."""
    loader = names["make_evaluation_loader"](world(names), part, 2)
    found = [tuple(map(np.asarray, batch)) for batch in loader]
    return tuple(np.concatenate(piece)[: len(part)] for piece in zip(*found, strict=True))


def first_batch(names: dict[str, Any]) -> Sequence[np.ndarray]:
    return batches(names, 1)[0]


def readers() -> list[threading.Thread]:
    """Grain's threads of this process."""
    return [each for each in threading.enumerate() if each.name.startswith("grain-prefetch")]


ADAPTER = Adapter(
    framework,
    networks,
    TWO,
    scalar=lambda number, device: jax.device_put(jnp.array([number]), device),
    evaluated=evaluated,
    first_batch=first_batch,
    grey={NOTEBOOK: "eaeef95c3d199e29"},
    colour={NOTEBOOK: "cf1b5e5a3790a1f6"},
    known=frozenset(BIASED),
)


def test_only_the_sums_of_losses_are_in_float64() -> None:
    losses = framework.DeviceLosses(TWO)
    losses.add(0, jnp.array(1.0), 3)
    assert losses.mean() == 1.0 and jnp.ones(1).dtype == jnp.float32


def test_its_cells_train_in_another_project(tmp_path: Path) -> None:
    copied.assert_trains("JAX_MultiGPU", tmp_path / "other")
