"""The number of workers and the batch that fit a machine."""

from collections.abc import Iterator

import pandas as pd
import pytest

from helpers.errors import UserError
from helpers.recipe import ScaledRecipe, lookup
from helpers.training import batch_size, loader_workers


class Loader:
    """Delivers as many batches of 10 a second as its workers make, and counts what is open.

    Its seconds pass on a clock of its own, so that a busy machine measures the same.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, per_worker: float, cores: int = 4) -> None:
        self.per_worker, self.cores, self.open, self.now = per_worker, cores, 0, 0.0
        monkeypatch.setattr(loader_workers.time, "perf_counter", lambda: self.now)

    def batches(self, workers: int) -> Iterator[tuple[list[int], list[int]]]:
        self.open += 1
        try:
            while True:
                self.now += 1 / (self.per_worker * min(max(workers, 1), self.cores))
                yield [0] * 10, [0] * 10
        finally:
            self.open -= 1


def test_throughput_counts_images_and_ends_the_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader(monkeypatch, per_worker=200)
    assert loader_workers.images_per_second(loader.batches, 1, 10) == pytest.approx(2000)
    assert loader.open == 0


def test_more_workers_are_tried_until_they_do_not_help(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader(monkeypatch, per_worker=100, cores=2)
    table = loader_workers.measure_workers(loader.batches, 10, [0, 1, 2, 4, 8, 16, 32])
    assert table["workers"].tolist() == [0, 1, 2, 4, 8]
    assert loader_workers.best_workers(table) == 2


def test_the_smallest_number_that_is_nearly_as_fast() -> None:
    table = pd.DataFrame({"workers": [0, 1, 2, 4], "images/s": [500.0, 980, 1000, 990]})
    assert loader_workers.best_workers(table) == 1


def test_candidates_end_at_twice_the_cores() -> None:
    assert loader_workers.candidates(2) == [0, 1, 2, 4]
    assert loader_workers.candidates(24) == [0, 1, 2, 4, 8, 16, 32]


class Memory:
    """A device that holds so many images of a step."""

    def __init__(self, room: int) -> None:
        self.room, self.tried = room, list[int]()

    def attempt(self, batch: int) -> None:
        self.tried.append(batch)
        if batch > self.room:
            raise MemoryError("out")


def largest(memory: Memory, *, images: int = 100_000, kind: str = "gpu") -> ScaledRecipe:
    return batch_size.largest(
        lookup("chexnet").on(4),
        memory.attempt,
        lambda error: isinstance(error, MemoryError),
        images=images,
        kind=kind,
    )


def test_the_largest_batch_is_found_by_halving(capsys: pytest.CaptureFixture[str]) -> None:
    memory = Memory(room=200)
    scaled = largest(memory)
    assert memory.tried == [1024, 512, 256, 128]
    assert (scaled.recipe.batch_size, scaled.global_batch_size) == (128, 512)
    # Linear scaling: the learning rate follows the global batch.
    assert scaled.learning_rate == pytest.approx(1e-4 * 4 * 128 / 64)
    assert "256 images per device do not fit into memory; trying 128" in capsys.readouterr().out


def test_never_more_than_the_images_fill_and_on_cpus_than_the_recipe_says() -> None:
    assert (
        largest(Memory(10_000), images=1000).recipe.batch_size == 128
    )  # 4 x 256 would not be filled
    assert largest(Memory(10_000), kind="cpu").recipe.batch_size == 64


def test_nothing_fits() -> None:
    with pytest.raises(UserError, match="not even one image"):
        largest(Memory(0))


def test_another_error_is_not_hidden() -> None:
    def attempt(batch: int) -> None:
        raise ValueError("a slip")

    with pytest.raises(ValueError, match="a slip"):
        batch_size.largest(lookup("demo").on(1), attempt, lambda e: False, images=1000, kind="gpu")


def test_running_out_elsewhere_names_the_batch_and_the_way_out() -> None:
    scaled = lookup("chexnet").on(4)
    with (
        pytest.raises(
            UserError, match=r"at 64 images of 224 px per device: set batch_size = 32, or"
        ),
        batch_size.explained(scaled, lambda error: True),
    ):
        raise RuntimeError("CUDA out of memory")
    with pytest.raises(RuntimeError, match="other"), batch_size.explained(scaled, lambda e: False):
        raise RuntimeError("other")
