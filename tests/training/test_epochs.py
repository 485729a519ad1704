"""The loop over the epochs that stands in a notebook, with a framework that computes nothing."""

from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpumon
from helpers.errors import LoaderError
from helpers.recipe import lookup
from helpers.training import checkpoint, train_loop
from helpers.training.work import Work
from helpers.training.world import TrainingFunctions, World

EPOCHS, IMAGES = 3, 128
WORLD = World(0, 1, ("device",), "cpu")


class Watch:
    """Sees nothing of a replica."""

    waits = False

    def rate(self) -> float:
        return 0.1

    def seen(self) -> None:
        return None


def framework() -> Any:
    return SimpleNamespace(
        load_optimizer=lambda *given: None,
        dump_optimizer=lambda *given: {},
        dump_weights=lambda network: {"weight": np.zeros(1, np.float32)},
        learning_rate=lambda optimizer: 0.1,
        completion=lambda result: None,
        synchronize=lambda devices: None,
        slowest=lambda seconds, devices: seconds,
        watch=lambda replica: Watch(),
    )


def batches() -> Iterator[Any]:
    size = lookup("demo").batch_size
    pixels = np.zeros((size, 32, 32, 1), np.uint8)
    return repeat((pixels, np.zeros((size, 14), np.float32)))


def train_epoch(replica: Any, loader: Any, steps: int, clock: Any) -> float:
    for _ in range(steps):
        next(loader)
        clock.queued(None)
    return 0.5


def work(train: Callable[..., None], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    table = pd.DataFrame({"row": range(IMAGES)})
    images = SimpleNamespace(
        train=table,
        valid=table[:4],
        task="multilabel",
        classes=[str(n) for n in range(14)],
        planes=1,
        targets=lambda part: np.tile(np.arange(14) % 2, (len(part), 1)).astype(np.float32),
    )
    functions = TrainingFunctions(
        build_model=lambda arrays: None,
        make_train_loader=lambda world, epoch, workers: batches(),
        make_evaluation_loader=lambda world, part, workers: [],
        make_fixed_loader=lambda world, shares: batches(),
        start=lambda *given, **named: None,
        train=train,
        train_epoch=train_epoch,
        predict=lambda replica, loader, total: (np.zeros((total, 14)), 0.5),
    )
    monkeypatch.setattr(train_loop, "of_each_device", lambda *given: np.zeros(1))
    monkeypatch.setattr("helpers.training.observer.Observer.observed", lambda self: None)
    recipe = lookup("demo", epochs=EPOCHS).on(1)
    monitor = gpumon.Monitor(folder / "trace")
    return Work(framework(), functions, images, recipe, 1, monitor)  # type: ignore[arg-type]


def trained(
    train: Callable[..., None],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    world: World = WORLD,
) -> train_loop.Trained:
    begin = checkpoint.Checkpoint({}, folder, {}, run="run")
    replica = SimpleNamespace(network=None, optimizer=None)
    made = work(train, folder, monkeypatch)
    return train_loop.train(world, made, replica, begin, lambda row: None)


def loop(run: Any, log: Callable[[Any, np.ndarray], None]) -> None:
    for epoch in run.epochs(batches(), []):
        with epoch.train() as (loader, clock):
            epoch.loss = train_epoch(None, loader, epoch.steps, clock)
        with epoch.validate() as evaluated:
            assert list(evaluated) == []
        log(epoch, np.zeros((4, 14)))


def test_a_loop_has_a_row_for_each_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = trained(
        lambda world, replica, run: loop(run, lambda epoch, scores: epoch.log(scores, 0.4)),
        tmp_path,
        monkeypatch,
    )
    assert [row["epoch"] for row in found.history] == [1, 2, 3]
    assert {(row["train_loss"], row["valid_loss"]) for row in found.history} == {(0.5, 0.4)}
    assert {row["images"] for row in found.history} == {IMAGES}


@pytest.mark.parametrize(
    ("train", "said"),
    [
        (lambda world, replica, run: None, "train ended after 0 of 3 epochs; let it iterate over"),
        (
            lambda world, replica, run: loop(run, lambda epoch, scores: None),
            r"epoch 1: train did not call epoch\.log; let it do so",
        ),
        (
            lambda world, replica, run: loop(run, lambda epoch, scores: epoch.log(scores[:3], 0.4)),
            "validation, epoch 1: predict returned logits for 3 of 4 images; make_evaluation",
        ),
    ],
)
def test_a_loop_that_leaves_something_out_is_told_what(
    train: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LoaderError, match=f"^{said}"):
        trained(train, tmp_path, monkeypatch)


class Sharded:
    """An array of JAX over two ranks, of which this one has the first half."""

    def __init__(self, own: np.ndarray) -> None:
        self.ndim, self.addressable_shards = own.ndim, [SimpleNamespace(data=own)]

    def __len__(self) -> int:
        return 2 * len(self.addressable_shards[0].data)


KEPT = {
    "PyTorch's, Keras's": lambda batch: batch,
    "MXNet's": lambda batch: [batch],
    "TensorFlow's": lambda batch: tuple(SimpleNamespace(values=(part,)) for part in batch),
    "JAX's": lambda batch: tuple(map(Sharded, batch)),
    "Chainer's": lambda batch: [tuple(part[n : n + 1] for part in batch) for n in range(17)],
}


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize(("rank", "processes", "named"), [(1, 2, ", rank 1"), (0, 1, "")])
def test_a_batch_of_another_size_is_refused_before_its_step(
    kept: str,
    rank: int,
    processes: int,
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A mean over the ranks would be wrong without a word."""
    small = KEPT[kept](tuple(part[:17] for part in next(batches())))
    taken: list[Any] = []

    def train(world: World, replica: Any, run: Any) -> None:
        for epoch in run.epochs(iter([next(batches()), small]), []):
            with epoch.train() as (loader, clock):
                for batch in clock.batches(loader):
                    taken.append(batch)
                    clock.queued(None)

    world = World(rank, processes, ("device",), "cpu")
    size = lookup("demo").batch_size
    said = f"^epoch 1{named}: batch 2 of 2 has 17 images, not {size}; let make_train_loader give"
    with pytest.raises(LoaderError, match=said):
        trained(train, tmp_path, monkeypatch, world)
    assert len(taken) == 1, "no step is taken on it"


@pytest.mark.parametrize("by_a_thread", [True, False])
def test_a_rank_whose_loader_ends_is_named(
    by_a_thread: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keras reads in a thread of TensorFlow, whose own error said nothing in its first line."""

    def train(world: World, replica: Any, run: Any) -> None:
        for epoch in run.epochs(iter([next(batches())]), []):
            with epoch.train() as (loader, clock):
                try:
                    for _ in clock.batches(loader):
                        clock.queued(None)
                except LoaderError as error:
                    if by_a_thread:
                        raise RuntimeError("PyFunc") from error
                    raise

    said = "^epoch 1, rank 1: the training loader gave 1 of 2 batches; let make_train_loader give"
    with pytest.raises(LoaderError, match=said):
        trained(train, tmp_path, monkeypatch, World(1, 2, ("device",), "cpu"))
