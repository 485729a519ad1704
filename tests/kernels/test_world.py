"""The world's rows on real loaders and loops: what is planted in a notebook fails its row.

Runs in the pytorch environment: of its two notebooks one has a process for each device, the other
one process for all.
"""

from typing import Any

import pytest
import torch
from coverage_checks import called, failed_after_training, failed_in_data_coverage, world_of
from notebook_cells import failed, functions_with
from torch import distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from helpers.fairness import process_checks
from helpers.training import data_coverage

PROCESSES, ONE_PROCESS = "PyTorch_MultiGPU", "PyTorch_MultiGPU_Exp_Loss"


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return world_of(PROCESSES, tmp_path_factory.mktemp("processes"))


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return world_of(ONE_PROCESS, tmp_path_factory.mktemp("one"))


@pytest.mark.parametrize("world", ["processes", "one_process"])
def test_a_sound_world_passes(world: str, request: pytest.FixtureRequest) -> None:
    names = request.getfixturevalue(world)
    images = names["this_run"].images
    before = images.train, images.classes
    found = {check.check: check for check in called(names)}
    assert [check.verdict for check in found.values()] == ["pass"] * 5
    count = "2 processes" if world == "processes" else "1 process"
    assert found[process_checks.JOINED].reason == f"{count}, 2 devices, 1 host"
    once = found[process_checks.ONCE].reason
    assert once == (
        "128 of 140: 12 fill no batch and are dropped; all 128 where 128 images fill whole batches"
    )
    assert (images.train is before[0]) and images.classes == before[1], "the run's own again"


TICKETS = "world.size, world.rank, seed=scaled.recipe.seed)"
JOIN = """        init_method=os.environ[replicas.RENDEZVOUS],
        rank=world.rank,
        world_size=world.size,
"""
ALONE = """        init_method=os.environ[replicas.RENDEZVOUS] + str(world.rank),
        rank=0,
        world_size=1,
"""


@pytest.mark.parametrize(
    ("sound", "broken", "rows"),
    [
        (TICKETS, TICKETS.replace("rank,", "rank * 0,"), {process_checks.ONCE}),
        (TICKETS, TICKETS.replace("seed)", "seed + world.rank)"), {process_checks.ONCE}),
        ("set_epoch(self.epoch + 1)", "set_epoch(1)", {process_checks.ORDER}),
        (
            "part.iloc[world.rank :: world.size]",
            "part.iloc[np.array_split(range(len(part)), world.size)[world.rank]]",
            {process_checks.EVALUATED, process_checks.LOSS},
        ),
        (
            JOIN,
            ALONE,
            {process_checks.JOINED, process_checks.EVALUATED, process_checks.LOSS},
        ),
    ],
    ids=["no sharding", "another seed on one rank", "no reshuffle", "other rows", "alone"],
)
def test_a_fault_in_one_of_several_processes_is_caught(
    processes: dict[str, Any], sound: str, broken: str, rows: set[str]
) -> None:
    assert failed_in_data_coverage(processes, PROCESSES, sound, broken) == rows


@pytest.mark.parametrize(
    ("sound", "broken", "rows"),
    [
        ("for epoch in count(self.epoch + 1):", "for epoch in repeat(1):", {process_checks.ORDER}),
        (
            "random.permutation(self.images)[:whole]",
            "random.integers(self.images, size=whole)",
            {process_checks.ONCE},
        ),
    ],
    ids=["no reshuffle", "at random"],
)
def test_a_fault_in_the_one_process_is_caught(
    one_process: dict[str, Any], sound: str, broken: str, rows: set[str]
) -> None:
    assert failed_in_data_coverage(one_process, ONE_PROCESS, sound, broken) == rows


def test_a_padded_evaluation_is_caught_by_its_loss(
    one_process: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its logits are cut off at the right place, so that nothing else tells."""
    names = one_process
    evaluation, predict = names["make_evaluation_loader"], names["predict"]

    def padded(world: Any, part: Any, workers: int) -> Any:
        size = names["scaled"].global_batch_size
        filled = part.iloc[[n % len(part) for n in range(-(-len(part) // size) * size)]]
        return evaluation(world, filled, workers)

    def cut_off(replica: Any, loader: Any, total: int) -> Any:
        logits, loss = predict(replica, loader, total)
        return logits[:total], loss

    monkeypatch.setitem(names, "make_evaluation_loader", padded)
    monkeypatch.setitem(names, "predict", cut_off)
    run = names["this_run"]
    functions = run.functions
    run.take(functions_with(names))
    assert failed(called(names)) == {process_checks.LOSS}
    run.take(functions)


def test_fewer_ranks_than_asked_for_are_caught(
    processes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = processes["this_run"]
    (first, _), everywhere = run.worlds(), run.everywhere
    alone = type(first)(0, 1, first.devices, first.kind)
    monkeypatch.setattr(run, "worlds", lambda: [alone])
    found = data_coverage.check_fairness(everywhere, run.images, run.recipe, processes=2, hosts=1)
    rows = {check.check: check for check in found}
    assert rows[process_checks.JOINED].verdict == "fail"
    said = "1 of 2 processes, not every rank once, not all in one world, other devices"
    assert rows[process_checks.JOINED].reason == said
    assert rows[process_checks.ONCE].verdict == "fail", "half of each batch is missing"


MADE = "    optimizer = make_optimizer(network, rule or scaled.recipe.rule)\n"
"""The line of ``start`` after which a replica's model is there."""


def deaf(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Gives the others its gradients, and keeps to its own."""
    own = bucket.buffer().clone()
    return allreduce_hook(group, bucket).then(lambda reduced: own)


def test_one_rank_without_all_reduce_is_caught(processes: dict[str, Any]) -> None:
    processes |= {"deaf": deaf, "allreduce_hook": allreduce_hook}
    hook = "model.register_comm_hook(None, deaf if world.rank else allreduce_hook)"
    found = failed_after_training(processes, PROCESSES, MADE, f"    {hook}\n{MADE}")
    assert found == {process_checks.REPLICAS, process_checks.WEIGHTS}
    assert processes["this_run"].record.content["fairness"]["comparable"] is False


def test_equal_ranks_pass_after_training(processes: dict[str, Any]) -> None:
    assert failed_after_training(processes, PROCESSES, MADE, MADE) == set()
    rows = {check.check: check for check in processes["this_run"].fairness_check.checks}
    assert rows[process_checks.REPLICAS].difference == 0.0
    assert str(rows[process_checks.WEIGHTS].reason).endswith(" on all 2")
