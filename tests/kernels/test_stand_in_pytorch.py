"""The GPU branches of PyTorch's notebooks; all is real but the GPUs (``stand_in_cuda``).

Runs in the pytorch environment.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import stand_in_cuda
import torch
from notebook_cells import (
    CHECKED,
    assert_passed,
    cell_with,
    failed_in_training_loop,
    namespace_of,
    only_the_loop,
)
from resuming import write_small_images

from helpers.fairness import reference
from helpers.frameworks import devices, installed, replicas
from helpers.frameworks import pytorch as framework
from helpers.frameworks.capabilities import Gpu
from helpers.runner.self_test import expected
from helpers.training.world import World

ONE_A_GPU, ONE_FOR_ALL = "PyTorch_MultiGPU", "PyTorch_MultiGPU_Exp_Loss"


@pytest.fixture(autouse=True)
def _nothing_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The data-coverage check reads through DataLoader, which pins memory by the driver in C++."""
    only_the_loop(monkeypatch)


@pytest.fixture
def loop(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> dict[str, Any]:
    """A notebook's names for so many replicas on so many GPUs, up to its training-loop check."""
    notebook, count, gpus = request.param
    there = [Gpu(f"GPU {number}") for number in range(gpus)]
    monkeypatch.setattr(devices, "visible", lambda: there)
    monkeypatch.setattr(installed, "why_not_here", lambda gpus: None)
    cpus = [torch.device("cpu")] * count
    monkeypatch.setattr(framework, "list_devices", lambda kind, number, gpus: cpus[:number])
    if notebook == ONE_FOR_ALL:
        stand_in_cuda.install(monkeypatch, shared=gpus < count)
    else:
        monkeypatch.setattr(replicas, "run", stand_in_cuda.runs_on_gpus(shared=gpus < count))
    return namespace_of(
        notebook,
        tmp_path,
        until=CHECKED,
        checked=False,
        devices=count,
        gpus=gpus,
        recipe="demo",
        data=str(write_small_images(tmp_path / "data")),
        batch_size=4,
    )


LOOPS = [(ONE_A_GPU, 2, 2), (ONE_FOR_ALL, 3, 3), (ONE_A_GPU, 2, 1), (ONE_FOR_ALL, 4, 1)]


@pytest.mark.parametrize("loop", LOOPS, indirect=True)
def test_the_loop_walks_the_path_of_one_device_stand_in(loop: dict[str, Any]) -> None:
    loop["this_run"].check_training_loop(**vars(loop["this_run"].functions))
    assert_passed(loop["this_run"])


@pytest.mark.parametrize("loop", [(ONE_FOR_ALL, 2, 2)], indirect=True)
def test_losses_that_are_not_divided_are_caught_stand_in(loop: dict[str, Any]) -> None:
    divided, summed = "scaler.scale(loss) / len(each)", "scaler.scale(loss)"
    assert "weight change after 5 SGD steps" in failed_in_training_loop(
        loop, ONE_FOR_ALL, divided, summed
    )


@pytest.mark.parametrize("loop", [(ONE_FOR_ALL, 3, 3)], indirect=True)
def test_all_devices_compute_in_the_same_layout_stand_in(loop: dict[str, Any]) -> None:
    """Weights that are broadcast come without their strides: those devices would do other work."""
    run = loop["this_run"]
    (world,), shallow = run.worlds(), framework.shallow(reference.shallow_arrays(), run.devices)
    replica = run.functions.start(world, shallow)
    model = replica.network
    seen: list[tuple[bool, bool]] = []

    def note(part: torch.nn.Module, given: Any, output: torch.Tensor) -> None:
        layout = torch.channels_last
        seen.append(
            (
                part.weight.is_contiguous(memory_format=layout),
                output.is_contiguous(memory_format=layout),
            )
        )

    model.features.conv0.register_forward_hook(note)
    batch = torch.zeros(6, 32, 32, 1, dtype=torch.uint8), torch.zeros(6, 14)
    shares = loop["split"](world, batch)
    assert len(shares) == 3
    results = loop["forward_on_each"](replica.parallel, shares, world)
    assert seen == [(True, True)] * 3

    torch.autograd.backward([loss / 3 for loss, _ in results])
    gradient = model.features.conv0.weight.grad
    assert gradient is not None and gradient.abs().max() > 0, "all devices' gradients come back"


class Event:
    """CUDA's, which notes what is done with it; a quarter of a second lies between any two."""

    def __init__(self, **how: bool) -> None:
        self.how, self.done = how, list[str]()

    def record(self, stream: str) -> None:
        self.done.append(f"recorded on {stream}")

    def synchronize(self) -> None:
        self.done.append("waited for")

    def elapsed_time(self, later: "Event") -> float:
        assert self.how == later.how == {"enable_timing": True}
        return 250.0  # milliseconds


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    made: list[Event] = []

    def make(**how: bool) -> Event:
        made.append(Event(**how))
        return made[-1]

    monkeypatch.setattr(torch.cuda, "Event", make)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"the stream of {device}")
    return made


def test_the_clock_marks_a_step_where_it_is_queued_stand_in(events: list[Event]) -> None:
    wait = framework.completion(SimpleNamespace(is_cuda=True, device="cuda:1"))
    (event,) = events
    assert event.how == {"blocking": True}, "it sleeps instead of keeping a core busy"
    assert event.done == ["recorded on the stream of cuda:1"]
    assert wait is not None
    wait()
    assert event.done[1:] == ["waited for"]


def test_gpus_are_waited_for_and_nothing_else_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    gpus = framework.list_devices("gpu", 2)
    framework.synchronize([*gpus, torch.device("cpu")])
    assert waited == gpus


def test_gpus_are_named_without_starting_cuda_stand_in() -> None:
    assert [str(gpu) for gpu in framework.list_devices("gpu", 2)] == ["cuda:0", "cuda:1"]
    assert not torch.cuda.is_initialized()


@pytest.mark.parametrize(
    ("gpus", "places"), [(1, [0, 0, 0, 0]), (2, [0, 1, 0, 1]), (4, [0, 1, 2, 3])]
)
def test_replicas_are_dealt_out_to_the_gpus_stand_in(gpus: int, places: list[int]) -> None:
    assert [gpu.index for gpu in framework.list_devices("gpu", 4, gpus)] == places


@pytest.mark.parametrize(
    ("count", "gpus", "backend"), [(2, 2, "nccl"), (2, 1, "gloo"), (4, 2, "gloo")]
)
def test_the_fairness_check_too_joins_what_shares_a_gpu_by_gloo_stand_in(
    monkeypatch: pytest.MonkeyPatch, count: int, gpus: int, backend: str
) -> None:
    asked = []

    def begin(backend: str, **how: Any) -> None:
        asked.append(backend)
        raise ConnectionAbortedError  # here CUDA would be needed

    monkeypatch.setattr(torch.distributed, "init_process_group", begin)
    monkeypatch.setattr(replicas, "run", lambda replica, count: [replica(0)])
    monkeypatch.setenv(replicas.RENDEZVOUS, "file:///nowhere")
    model = framework.shallow(reference.shallow_arrays(), [torch.device("cpu")])
    images, targets = np.zeros((4, 3, 32, 32), np.float32), np.zeros((4, 14), np.float32)
    with pytest.raises(ConnectionAbortedError):
        framework.gradients(model, images, targets, framework.list_devices("gpu", count, gpus))
    assert asked == [backend]


@pytest.mark.parametrize(("count", "gpus", "turns"), [(2, 2, 1), (4, 2, 2), (3, 1, 3), (2, 0, 2)])
def test_one_share_alone_is_as_many_steps_as_take_turns_on_a_gpu_stand_in(
    count: int, gpus: int, turns: int, tmp_path: Path
) -> None:
    names = namespace_of(
        ONE_FOR_ALL, tmp_path, until="this_run.check_training_loop(", checked=False
    )
    exec(cell_with(ONE_FOR_ALL, "def without_all_reduce("), names)
    world = World(0, count, (torch.device("cpu"),) * count, "gpu" if gpus else "cpu", gpus)
    replica = SimpleNamespace(world=world, parallel=torch.nn.Identity())
    trained: list[Any] = []

    def train_step(replica: Any, shares: list[Any]) -> list[None]:
        trained.append(shares)
        return [None]

    names["train_step"] = train_step
    clock = SimpleNamespace(batches=iter, queued=lambda loss: None)
    names["without_all_reduce"](replica, iter([list(range(count))] * 2), 2, clock)
    assert trained == [[0]] * turns * 2


@pytest.mark.parametrize(("count", "gpus"), [(1, None), (2, None), (2, 1)])
def test_the_probes_all_reduce_goes_the_notebooks_way_stand_in(
    count: int, gpus: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL and a process for each GPU; Gloo where they share one."""
    monkeypatch.setattr(replicas, "run", stand_in_cuda.runs_on_gpus(shared=gpus is not None))
    shares = expected.shares(count)
    found = framework.all_reduced(shares, framework.list_devices("gpu", count, gpus))
    assert expected.wrong_sum(found, shares) is None
