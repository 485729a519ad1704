"""The training loop's limits, on the reference's own numbers: faults just above and just below."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from helpers.fairness import kept_statistics, reference, training_loop
from helpers.fairness.check_results import Check
from helpers.fairness.reference_checks import BIASED
from helpers.fairness.training_loop import ADAM, MOMENTUM, SGD, Trial
from helpers.recipe import Rule
from helpers.recipe.settings import PRECISIONS

Result = tuple[float, dict[str, np.ndarray], np.ndarray]
Fault = Callable[[Trial, Result, float], Result]

LIMITS = {
    "fp32": {"values": 1e-5, "way": 2e-3},
    "tf32": {"values": 2e-3, "way": 0.1},
    "fp16": {"values": 2e-3, "way": 0.1},
    "bf16": {"values": 1e-2, "way": 0.2},
}
"""Written out: those of the fairness check may not move unnoticed."""

TASKS = ("multilabel", "multiclass")
START = reference.shallow_arrays()
MEAN, VARIANCE = "features.norm0.running_mean", "features.norm0.running_var"
TOGETHER = "classifier after a step on different images"
VALIDATED = "validated with the statistics that are saved"
SURVIVE = "which replica's running statistics are kept"


def sound(trial: Trial) -> Result:
    """What a loop without a fault gives: the reference's path, or replica 0's statistics."""
    if trial.steps > 1:
        return walked(path_of(trial), task_of(trial))
    return of_replica_0(len(trial.shares), task_of(trial))


def task_of(trial: Trial) -> str:
    """A trial tells its task by its targets: a row of findings, or a class's number."""
    return "multiclass" if trial.shares[0][1].ndim == 1 else "multilabel"


def path_of(trial: Trial) -> str:
    """The reference's path that a trial is to walk."""
    return trial.rule.name + (f" {reference.COUPLED}" if trial.rule.weight_decay else "")


def walked(path: str, task: str = "multilabel") -> Result:
    known = reference.paths(task)
    after = {name: known[f"{path} {name}"].astype(np.float64) for name in START}
    nothing = np.zeros((0, 14))  # what it then validates with is looked at after one step
    return float(known[f"{path} losses"].mean()), after, nothing


@cache
def of_replica_0(devices: int, task: str) -> Result:
    """Each device is given darker images, and other findings or classes."""
    (grey, targets), classes = reference.batch_of(task), task == "multiclass"
    shares = tuple(
        (grey // (1 + n), (targets + n) % 14 if classes else np.roll(targets, n, axis=1))
        for n in range(devices)
    )
    return with_statistics(Trial(START, shares, SGD, (0.1,)), after_one_step(shares[0][0]))


def after_one_step(grey: np.ndarray) -> np.ndarray:
    """The running mean, by BatchNorm's definition with PyTorch's momentum."""
    mean = reference.after_conv0(START, grey).mean(axis=(0, 2, 3))
    return 0.9 * START[MEAN].astype(np.float64) + 0.1 * mean


def with_statistics(trial: Trial, mean: np.ndarray) -> Result:
    """The mean of the devices' steps, with this running mean in the weights."""
    after = {name: array.astype(np.float64) for name, array in START.items()} | {MEAN: mean}
    each = [reference.classifier_gradient(*share) for share in trial.shares]
    after["classifier.weight"] -= trial.rates[0] * np.mean(each, axis=0)
    return validated(trial, after)


def validated(trial: Trial, after: dict[str, np.ndarray]) -> Result:
    grey = np.concatenate([share for share, _ in trial.shares])
    return 0.7, after, reference.shallow_logits(after, grey)


def checks_of(
    fault: Callable[[Trial, Result], Result] = lambda trial, result: result,
    *,
    devices: int = 2,
    precision: str = "fp32",
    task: str = "multilabel",
) -> dict[str, Check]:
    found = training_loop.check_fairness(
        lambda trial: fault(trial, sound(trial)),
        devices=devices,
        precision=precision,
        task=task,
    )
    return {check.check: check for check in found}


def of_path(rule: str, change: Callable[[Result, float], Result]) -> Fault:
    """A fault in the steps by one rule only."""
    return lambda trial, result, by: (
        change(result, by) if trial.steps > 1 and trial.rule.name == rule else result
    )


def of_statistics(change: Callable[[Result, float], Result]) -> Fault:
    return lambda trial, result, by: change(result, by) if trial.steps == 1 else result


def less_loss(result: Result, by: float) -> Result:
    return result[0] - by, *result[1:]


def longer(result: Result, by: float) -> Result:
    """The trained weights further from the start than they should be."""
    loss, after, logits = result
    moved = {
        name: array + by * (array - START[name]) if "running" not in name else array
        for name, array in after.items()
    }
    return loss, moved, logits


def other(name: str) -> Callable[[Result, float], Result]:
    def scaled(result: Result, by: float) -> Result:
        loss, after, logits = result
        return loss, after | {name: after[name] * (1 + by)}, logits

    return scaled


def other_logit(result: Result, by: float) -> Result:
    logits = result[2].copy()
    logits[1, 3] -= by
    return *result[:2], logits


def survivor_moved(trial: Trial, result: Result, by: float) -> Result:
    """The statistics, and the validation with them."""
    return with_statistics(trial, result[1][MEAN] * (1 + by)) if trial.steps == 1 else result


def further(trial: Trial, result: Result, by: float) -> Result:
    """The classifier's step longer than the mean of the devices', and validated with it."""
    return validated(trial, longer(result, by)[1]) if trial.steps == 1 else result


FAULTS: list[tuple[str, str, Fault]] = [
    ("mean loss of 5 SGD steps", "values", of_path("sgd", less_loss)),
    ("weight change after 5 SGD steps", "way", of_path("sgd", longer)),
    ("running mean after 5 SGD steps", "values", of_path("sgd", other(MEAN))),
    ("running variance after 5 SGD steps", "values", of_path("sgd", other(VARIANCE))),
    ("mean loss of 5 Adam steps", "values", of_path("adam", less_loss)),
    ("weight change after 5 Adam steps", "way", of_path("adam", longer)),
    (TOGETHER, "way", further),
    (VALIDATED, "values", of_statistics(other_logit)),
    (SURVIVE, "values", survivor_moved),
]
"""For each row, in their order."""


def failed(checks: Mapping[str, Check]) -> list[str]:
    return [name for name, check in checks.items() if check.verdict != "pass"]


def test_every_precision_has_its_limits() -> None:
    assert training_loop.LIMITS.keys() == LIMITS.keys() == set(PRECISIONS)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_sound_loop_passes_every_row(precision: str, task: str) -> None:
    checks = checks_of(precision=precision, task=task)
    assert list(checks) == [row for row, _, _ in FAULTS] and failed(checks) == []
    assert max(check.difference or 0.0 for check in checks.values()) < 1e-6


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_faults_just_below_all_limits_pass(precision: str, task: str) -> None:
    def all_of_them(trial: Trial, result: Result) -> Result:
        for _, kind, fault in FAULTS:
            result = fault(trial, result, 0.8 * LIMITS[precision][kind])
        return result

    assert failed(checks_of(all_of_them, precision=precision, task=task)) == []


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("row", "kind", "fault"), FAULTS)
def test_a_fault_just_above_a_limit_fails_its_row(
    precision: str, row: str, kind: str, fault: Fault, task: str
) -> None:
    by = 1.25 * LIMITS[precision][kind]

    def broken(trial: Trial, result: Result) -> Result:
        return fault(trial, result, by)

    assert failed(checks_of(broken, precision=precision, task=task)) == [row]


def test_a_biased_variance_is_known_and_measured() -> None:
    """After five steps of a variance kept (n-1)/n as large, n values a channel."""

    def biased(trial: Trial, result: Result) -> Result:
        loss, after, logits = result
        if trial.steps == 1:
            return result
        n, old = 4 * 32 * 32, 0.9**5 * START[VARIANCE].astype(np.float64)
        return loss, after | {VARIANCE: old + (after[VARIANCE] - old) * (n - 1) / n}, logits

    checks = checks_of(biased)
    assert [name for name, check in checks.items() if check.verdict == "expected"] == [
        "running variance after 5 SGD steps"
    ]
    assert checks["running variance after 5 SGD steps"].reason == BIASED
    assert failed(checks) == ["running variance after 5 SGD steps"]  # not passed, but known


def test_epsilon_before_the_bias_correction_is_known_and_as_large_as_predicted() -> None:
    checks = checks_of(
        lambda trial, result: walked(reference.EPSILON_FIRST) if trial.rule == ADAM else result
    )
    row = checks.pop("weight change after 5 Adam steps")
    assert failed(checks) == []
    assert (row.verdict, f"{row.difference:.3g}") == ("expected", "0.0531")
    assert row.reason == (
        "adds epsilon before the bias correction; this predicts a difference of 0.0531"
    )


@pytest.mark.parametrize("kept", range(4))
def test_who_survives_is_named(kept: int) -> None:
    """One of three replicas', or the average of all."""

    def keeping(trial: Trial, result: Result) -> Result:
        each = [after_one_step(grey) for grey, _ in trial.shares]
        each.append(np.mean(each, axis=0))
        return with_statistics(trial, each[kept]) if trial.steps == 1 else result

    checks = checks_of(keeping, devices=3)
    assert failed(checks) == []
    assert checks[SURVIVE].reason == (f"replica {kept}'s" if kept < 3 else kept_statistics.AVERAGE)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("bias", [0, 1])
@pytest.mark.parametrize("together", [False, True])
def test_the_global_batchs_are_told_from_an_average(
    together: bool, bias: int, precision: str
) -> None:
    """Their means are the same; of variances n or n - 1 make no such difference."""

    def keeping(trial: Trial, result: Result) -> Result:
        if trial.steps > 1:
            return result
        greys = [grey for grey, _ in trial.shares]
        _, after, _ = with_statistics(trial, np.mean([after_one_step(x) for x in greys], axis=0))
        values = [reference.after_conv0(START, grey) for grey in greys]
        of = [np.concatenate(values)] if together else values
        variance = np.mean([each.var(axis=(0, 2, 3), ddof=bias) for each in of], axis=0)
        after[VARIANCE] = 0.9 * START[VARIANCE].astype(float) + 0.1 * variance
        return validated(trial, after)

    checks = checks_of(keeping, precision=precision)
    row = checks.pop(SURVIVE)
    known = (kept_statistics.GLOBAL, "expected") if together else (kept_statistics.AVERAGE, "pass")
    assert failed(checks) == [] and (row.reason, row.verdict) == known


def test_statistics_of_none_fail() -> None:
    start = START[MEAN].astype(float)
    checks = checks_of(lambda t, r: with_statistics(t, start) if t.steps == 1 else r)
    assert failed(checks) == [SURVIVE]
    assert str(checks[SURVIVE].reason).startswith("none of them; nearest is ")


def test_validation_with_each_replicas_own_statistics_fails() -> None:
    """The logits of the second share by the second replica's running mean, which is not saved."""

    def own(trial: Trial, result: Result) -> Result:
        loss, after, logits = result
        if trial.steps > 1:
            return result
        second = after | {MEAN: after_one_step(trial.shares[1][0])}
        theirs = reference.shallow_logits(second, trial.shares[1][0])
        return loss, after, np.concatenate([logits[: len(theirs)], theirs])

    for precision in PRECISIONS:
        assert failed(checks_of(own, precision=precision)) == [VALIDATED]


def test_a_device_that_trains_alone_is_noticed() -> None:
    """The first device's step in place of the mean of all, in every precision."""

    def alone(trial: Trial, result: Result) -> Result:
        if trial.steps > 1:
            return result
        only = replace(trial, shares=trial.shares[:1])
        return validated(trial, with_statistics(only, result[1][MEAN])[1])

    for precision in PRECISIONS:
        for task in TASKS:
            row = checks_of(precision=precision, task=task)[TOGETHER]
            assert row.reason == "as long as expected: a mean, not a sum"
            found = checks_of(alone, precision=precision, task=task)
            assert failed(found) == [TOGETHER]
            assert "does each device train alone?" in str(found[TOGETHER].reason)


def test_on_one_device_none_else_could_survive() -> None:
    check = checks_of(devices=1)[SURVIVE]
    assert check == Check(SURVIVE, None, None, "there is one device")


@pytest.mark.parametrize(("row", "kind", "fault"), FAULTS)
def test_nan_fails(row: str, kind: str, fault: Fault) -> None:
    checks = checks_of(lambda trial, result: fault(trial, result, np.nan))
    assert checks[row].verdict == "fail"


def own_rule(
    rule: Rule, path: str | None = None, task: str = "multilabel", *skipped: str
) -> dict[str, Check]:
    """The rows of a recipe's own rule, for a loop that walks ``path`` instead of its own."""

    def check_training_loop(trial: Trial) -> Result:
        own = trial.steps > 1 and trial.rule.weight_decay == bool(rule.weight_decay) * DECAY
        if path is not None and own and trial.rule.name == rule.name:
            return walked(path, task)
        return sound(trial)

    found = training_loop.check_fairness(
        check_training_loop, devices=2, rule=rule, task=task, skipped=dict.fromkeys(skipped, WHY)
    )
    return {check.check: check for check in found}


WHY = "it has none"
DECAY = reference.DECAY


@pytest.mark.parametrize("rule", [SGD, MOMENTUM, ADAM])
def test_the_recipes_own_rule_is_checked_beside_plain_descent(rule: Rule) -> None:
    trials: list[Trial] = []

    def check_training_loop(trial: Trial) -> Result:
        trials.append(trial)
        return sound(trial)

    training_loop.check_fairness(
        check_training_loop, devices=1, rule=replace(rule, weight_decay=1e-4)
    )
    decayed = replace(rule, weight_decay=DECAY)
    own = [] if rule == SGD else [rule]
    assert [trial.rule for trial in trials if trial.steps > 1] == [SGD, *own, decayed]
    for trial in trials[:-1]:
        assert trial.rates == reference.RATES[trial.rule.name] and len(trial.rates) == 5
    assert len(set(reference.RATES["momentum"])) > 1, "a rate that changes shows where it is kept"


@pytest.mark.parametrize("task", TASKS)
def test_momentum_with_the_rate_in_its_velocity_is_found_out(task: str) -> None:
    rows = own_rule(MOMENTUM, task=task)
    assert rows["weight change after 5 momentum steps"].verdict == "pass"
    late = own_rule(MOMENTUM, reference.LATE, task)["weight change after 5 momentum steps"]
    assert late.verdict == "fail"
    assert str(late.reason).startswith("the velocity contains the learning rate")
    assert late.threshold == training_loop.LIMITS["fp32"].way


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("rule", [SGD, MOMENTUM, ADAM])
def test_which_weight_decay_there_is_is_found_out(rule: Rule, task: str) -> None:
    decayed, words = replace(rule, weight_decay=1e-4), training_loop.IN_WORDS[rule.name]
    name = f"weight decay in 5 {words} steps"
    assert name not in own_rule(rule), "a recipe without decay has no such row"
    right, *wrong = training_loop.DECAYS.items()
    assert own_rule(decayed, task=task)[name].verdict == "pass"
    assert own_rule(decayed, task=task)[name].reason == right[0]
    for said, path in wrong:
        row = own_rule(decayed, f"{rule.name} {path}".strip(), task)[name]
        if rule == SGD and path == reference.DECOUPLED:
            assert (row.verdict, row.reason) == ("pass", right[0]), "there they are the same"
        else:
            assert (row.verdict, row.reason) == ("fail", said)


@pytest.mark.parametrize("task", TASKS)
def test_what_a_framework_has_not_is_expected_and_nothing_else_is(task: str) -> None:
    late = own_rule(MOMENTUM, reference.LATE, task, training_loop.RATE_APART)
    for row in ("mean loss of 5 momentum steps", "weight change after 5 momentum steps"):
        assert late[row].verdict == "expected"
    wrong = own_rule(MOMENTUM, "sgd", task, training_loop.RATE_APART)
    assert wrong["weight change after 5 momentum steps"].verdict == "fail"
    for rule, own in ((MOMENTUM, reference.LATE), (ADAM, reference.EPSILON_FIRST)):
        decayed = replace(rule, weight_decay=1e-4)
        name = f"weight decay in 5 {training_loop.IN_WORDS[rule.name]} steps"
        for path, verdict in ((reference.DECOUPLED, "expected"), ("", "fail")):
            walked = own_rule(decayed, f"{own} {path}".strip(), task, training_loop.IN_GRADIENT)
            assert walked[name].verdict == verdict
            assert (walked[name].reason == WHY) == (verdict == "expected")


def test_the_references_first_losses_are_those_of_the_definitions() -> None:
    """By NumPy, from logits: the mean over images of one softmax, and over findings of sigmoids."""
    x = reference.after_conv0(START, reference.batch()[0])
    mean, variance = x.mean(axis=(0, 2, 3), keepdims=True), x.var(axis=(0, 2, 3), keepdims=True)
    scale, offset = (
        START[f"features.norm0.{name}"].astype(float)[:, None, None] for name in ("weight", "bias")
    )
    normal = (x - mean) / np.sqrt(variance + 1e-5) * scale + offset
    pooled = np.maximum(normal, 0).mean(axis=(2, 3))
    logits = pooled @ START["classifier.weight"].T.astype(float) + START["classifier.bias"]
    (_, findings), (_, classes) = (reference.batch_of(task) for task in TASKS)
    softmax = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(4), classes]
    sigmoids = np.log1p(np.exp(logits)) - findings * logits
    for task, expected in zip(TASKS, (sigmoids.mean(), softmax.mean()), strict=True):
        for rule in ("sgd", "momentum", "adam"):
            assert reference.paths(task)[f"{rule} losses"][0] == pytest.approx(expected, abs=1e-12)
