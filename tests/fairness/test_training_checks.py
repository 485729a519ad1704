"""The rows of the training that ran: each passes as the recipe has it, and names what differs."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers.fairness import crops, training_checks
from helpers.fairness.check_results import Check
from helpers.fairness.observed import Epoch, Evaluation, Observed, first_batches
from helpers.frameworks.cpu_cores import CpuDevice
from helpers.frameworks.interface import Seen
from helpers.recipe import Recipe

RECIPE = Recipe(
    "own", epochs=3, batch_size=5, optimizer="sgd", momentum=0.9, weight_decay=1e-3,
    learning_rate=0.1, warmup_epochs=1.0, lr_gamma=0.1, lr_milestones=(2,), task="multiclass",
)  # fmt: skip
SCALED = RECIPE.on(2)
IMAGES, STEPS = 43, 4  # three of the images fill no batch
CONSTANTS = {"weight decay": (1e-3, 1e-3), "momentum": (0.9, 0.9)}
SEEN = Seen("momentum", CONSTANTS, "float32", "eager", tf32=False, threads=4, updates=12)


def epoch(number: int, rank: int, **changes: Any) -> Epoch:
    """Block after block of the order that seed and epoch give."""
    order = np.random.default_rng([RECIPE.seed, number - 1]).permutation(IMAGES)[:40]
    return replace(Epoch(number, STEPS, order.reshape(STEPS, 2, 5)[:, rank].ravel()), **changes)


def process(rank: int, **changes: Any) -> Observed:
    rates = [(step, SCALED.learning_rate_at(step, STEPS)) for step in range(12)]
    epochs = [epoch(number, rank) for number in (1, 2, 3)]
    sound = Observed(rank, SEEN, rates, epochs, [Evaluation("valid", 6, 6, 0)] * 3)
    return replace(sound, **changes)


BOTH = [process(0), process(1)]


def test_a_training_as_the_recipe_has_it_passes() -> None:
    checks = training_checks.check_fairness(BOTH, SCALED, IMAGES, on_gpu=False)
    verdicts = {check.check: check.verdict for check in checks if check.verdict != "pass"}
    assert verdicts == {crops.CROPS: "not checked"}, "no crops were kept"


def test_other_weights_at_the_start_are_named() -> None:
    assert training_checks.start(BOTH).verdict == "pass"
    found = training_checks.start([process(0), process(1, others=2)])
    assert found.verdict == "different"
    assert found.variant == "initial weights (2 arrays are not the recipe's)"


def rates(change: Any) -> Check:
    found = [(n, change(n, SCALED.learning_rate_at(n, STEPS))) for n in range(12)]
    return training_checks.rates([process(0), process(1, rates=found)], SCALED, STEPS)


@pytest.mark.parametrize(
    ("by", "said"), [(4, "0.4, where the recipe has 0.1"), (1 + 3e-6, "where the recipe has")]
)
def test_another_rate_is_named(by: float, said: str) -> None:
    found = rates(lambda step, rate: by * rate)
    assert found.verdict == "different" and said in str(found.variant)


def test_float32_is_no_other_rate_and_how_often_it_was_read_is_told() -> None:
    assert rates(lambda step, rate: float(np.float32(rate))).verdict == "pass"
    assert rates(lambda step, rate: 0.02 if step == 9 else rate).verdict == "pass"
    assert rates(lambda step, rate: rate).reason == "read from the optimiser at all 12 steps"
    few = process(0, rates=process(0).rates[:5])
    told = training_checks.rates([few], SCALED, STEPS).reason
    assert told is not None and told.startswith("read from the optimiser at 5 of 12 steps")
    assert training_checks.rates([process(0, rates=[])], SCALED, STEPS).verdict == "not checked"


def optimizer(seen: Seen, recipe: Recipe = RECIPE, **changes: Any) -> Check:
    return training_checks.optimizer(
        [process(0), process(1, seen=seen, **changes)] if recipe is RECIPE
        else [process(0, seen=seen)], recipe.on(2)
    )  # fmt: skip


def constants(**changes: tuple[float, float]) -> Seen:
    named = {name.replace("_", " "): value for name, value in changes.items()}
    return replace(SEEN, constants=CONSTANTS | named)


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (constants(momentum=(0.5, 0.5)), "optimiser (momentum 0.5 instead of 0.9)"),
        (constants(weight_decay=(0.0, 0.0)), "optimiser (weight decay 0 instead of 0.001)"),
        (constants(weight_decay=(0.0, 1e-3)), "optimiser (weight decay not of all weights the s"),
        (constants(nesterov=(1.0, 1.0)), "optimiser (nesterov 1 instead of 0)"),
        (constants(rate_factor=(1.0, 10.0)), "optimiser (rate factor not of all weights the same"),
        (constants(momentum=(np.nan, np.nan)), "optimiser (momentum not of all weights the same"),
        (replace(SEEN, optimizer="AdamW"), "optimiser (AdamW instead of momentum)"),
    ],
)
def test_another_optimiser_is_named(seen: Seen, said: str) -> None:
    found = optimizer(seen)
    assert found.verdict == "different" and str(found.variant).startswith(said)


def test_adams_constants_are_looked_at() -> None:
    adam = replace(RECIPE, optimizer="adam", weight_decay=0.0)
    sound = {"weight decay": 0.0, "beta 1": 0.9, "beta 2": 0.999, "epsilon": 1e-8}
    seen = Seen("adam", {what: (x, x) for what, x in sound.items()}, None, "eager", updates=12)
    assert optimizer(seen, adam).verdict == "pass"
    for what in ("beta 1", "beta 2", "epsilon"):
        other = replace(seen, constants={**seen.constants, what: (0.5, 0.5)})
        assert f"{what} 0.5 instead of" in str(optimizer(other, adam).variant)


def test_where_the_velocity_has_the_rate_the_last_change_is_in_the_momentum() -> None:
    last = [(10, 0.2), (11, 0.02)]
    follows = replace(constants(momentum=(0.09, 0.09)), rate_in_velocity=True)
    assert optimizer(follows, rates=last).verdict == "pass"
    assert optimizer(replace(follows, rate_in_velocity=False), rates=last).verdict == "different"
    # MXNet's first step has the change from its own rate of 0.01, with a velocity of 0.
    first = replace(constants(momentum=(9.0, 9.0)), rate_in_velocity=True)
    assert optimizer(first, rates=last[:1]).verdict == "pass"
    none = replace(constants(weight_decay=(0.0, 0.0)), updates=0)
    idle = process(0, rates=[], epochs=[], seen=none)  # resumed when all epochs were done
    assert training_checks.optimizer([idle, idle], SCALED).verdict == "not checked"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seen": replace(SEEN, updates=24)}, "24 updates in 12 steps"),
        ({"seen": replace(SEEN, updates=11)}, "11 updates in 12 steps"),
        (
            {"epochs": [epoch(1, 1), epoch(2, 1, images=np.arange(15)), epoch(3, 1)]},
            "epoch 2: 15 images",
        ),
    ],
)
def test_more_or_less_than_the_recipe_is_named(changes: Any, said: str) -> None:
    found = training_checks.amount([process(0), process(1, **changes)], SCALED, STEPS)
    assert found.verdict == "different" and said in str(found.variant)


def test_steps_that_fp16_leaves_out_and_updates_none_counts_pass() -> None:
    half = replace(RECIPE, precision="fp16").on(2)
    few = process(0, seen=replace(SEEN, updates=11))
    assert training_checks.amount([few, process(1)], half, STEPS).verdict == "pass"
    none = [process(0, seen=replace(SEEN, updates=None)), process(1)]
    found = training_checks.amount(none, SCALED, STEPS)
    assert found.verdict == "pass" and "the optimiser counts none" in str(found.reason)
    assert training_checks.amount([process(0)], RECIPE.on(1), STEPS).verdict == "pass"


def ordered(second: Epoch) -> Check:
    both = [process(0), process(1, epochs=[epoch(1, 1), second, epoch(3, 1)])]
    return training_checks.order(both, SCALED, IMAGES)


def test_images_with_other_labels_and_those_that_come_twice_fail() -> None:
    assert ordered(epoch(2, 1)).verdict == "pass"
    wrong = ordered(epoch(2, 1, misplaced=1))
    assert wrong.verdict == "fail" and "1 of 120 images" in str(wrong.reason)
    again = ordered(epoch(2, 1, images=epoch(2, 0).images))
    assert again.verdict == "fail" and "20 of 120 images" in str(again.reason)
    idle = [process(0, epochs=[]), process(1, epochs=[])]
    assert training_checks.order(idle, SCALED, IMAGES).verdict == "not checked"


@pytest.mark.parametrize("places", [[1, 0, *range(2, 20)], [*range(10, 20), *range(10)]])
def test_another_order_in_any_epoch_is_named(places: list[int]) -> None:
    found = ordered(epoch(2, 1, images=epoch(2, 1).images[places]))
    assert found.verdict == "different" and str(found.variant).startswith("order (")


TF_GRAPH, GRAPH = "graph (tf.function)", "graph (hybridize)"


@pytest.mark.parametrize(
    ("changes", "asked", "on_gpu", "verdict"),
    [
        ({}, "default", True, "pass"),
        ({"convolutions": "bfloat16"}, "default", False, "different"),
        ({"convolutions": "bfloat16/float32"}, "default", False, "different"),
        ({"convolutions": None}, "default", False, "not checked"),
        ({"tf32": True}, "default", True, "different"),
        ({"tf32": True}, "default", False, "pass"),
        ({"tf32": None}, "default", True, "pass"),
        ({"execution": TF_GRAPH}, "default", False, "pass"),
        ({"execution": "eager"}, "eager", False, "pass"),
        ({"execution": TF_GRAPH}, "eager", False, "different"),
        ({"execution": GRAPH}, "compiled", False, "pass"),
        ({"execution": "eager"}, "compiled", False, "different"),
    ],
)
def test_another_precision_or_execution_than_the_recipes_is_named(
    changes: dict[str, Any], asked: Any, on_gpu: bool, verdict: str
) -> None:
    ran = process(0, seen=replace(SEEN, **changes))
    found = training_checks.precision([ran], replace(RECIPE, execution=asked), on_gpu)
    assert found.verdict == verdict


@pytest.mark.parametrize(
    "wrong",
    [Evaluation("valid", 5, 6, 0), Evaluation("valid", 6, 6, 1), Evaluation("test", 0, 6, 0)],
)
def test_an_evaluation_of_other_images_fails(wrong: Evaluation) -> None:
    assert training_checks.evaluations(BOTH).verdict == "pass"
    bad = process(1, evaluations=[*BOTH[1].evaluations, wrong])
    found = training_checks.evaluations([BOTH[0], bad])
    assert found.verdict == "fail"
    assert f"{wrong.split}: {wrong.images} of 6 images" in str(found.reason)


CPUS = [CpuDevice((0, 4), 1), CpuDevice((1, 5), 1)]


@pytest.mark.parametrize(
    ("cores", "variant"),
    [
        ([(0, 4), (1, 5)], None),
        ([(0, 4), (0, 1, 4, 5)], "cores (0, 1, 4, 5 instead of 1, 5)"),
        ([(1, 5), (0, 4)], "cores (1, 5 instead of 0, 4; 0, 4 instead of 1, 5)"),
    ],
)
def test_each_process_is_to_run_on_its_devices_cores(
    cores: list[tuple[int, ...]], variant: str | None
) -> None:
    observed = [replace(each, cores=own) for each, own in zip(BOTH, cores, strict=True)]
    found = training_checks.cores(observed, CPUS)
    assert found.verdict == ("pass" if variant is None else "different")
    assert variant is None or found.variant == variant


def test_batches_have_one_digest_however_many_processes_share_the_devices() -> None:
    steps = [["a", "b"], ["c", "d"]]
    together = first_batches([process(0, blocks=steps)])
    apart = [process(rank, blocks=[[step[rank]] for step in steps]) for rank in range(2)]
    assert first_batches(apart) == together
    assert len(set(together)) == 2
    assert first_batches(list(reversed(apart))) != together
