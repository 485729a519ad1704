"""Fairness checks of the finished training: its learning rates, its steps and its images.

What the processes noted while they trained (``helpers.training.training_notes``) is compared with
the recipe. A notebook may train something else on purpose: most checks then give the verdict
*different*, and name the difference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from helpers.fairness import crops, weight_checks
from helpers.fairness.check_results import Check
from helpers.fairness.observed import Observed
from helpers.frameworks.cpu_cores import CpuDevice
from helpers.frameworks.libraries import DTYPES
from helpers.recipe import Recipe, ScaledRecipe
from helpers.recipe.settings import AS_USUAL, EAGER

START = "weights when training starts"
RATE = "learning rate in training"
OPTIMIZER = "optimiser in training"
AMOUNT = "steps, updates and images in training"
ORDER = "images in training, in the recipe's order"
PRECISION = "precision in training"
EVALUATED = "images of each validation and of the test"
CORES = "cores of each CPU device"

ROUNDED = 1e-6
"""The relative difference that float32 leaves in a rate or constant."""


def check_fairness(
    observed: Sequence[Observed],
    recipe: ScaledRecipe,
    images: int,
    *,
    on_gpu: bool,
    cpus: Sequence[CpuDevice] = (),
) -> list[Check]:
    """The rows of a training that has ended."""
    steps = recipe.steps(images)
    return [
        start(observed),
        rates(observed, recipe, steps),
        optimizer(observed, recipe),
        amount(observed, recipe, steps),
        order(observed, recipe, images),
        crops.check(
            [crop for each in observed for crop in each.crops],
            any(epoch.misplaced for each in observed for epoch in each.epochs),
        ),
        precision(observed, recipe.recipe, on_gpu),
        *evaluated(observed),
        *([cores(observed, cpus)] if cpus else []),
    ]


def cores(observed: Sequence[Observed], cpus: Sequence[CpuDevice]) -> Check:
    """The cores that each process could run on when training had ended: its devices' own."""
    each = len(cpus) // len(observed)
    wrong = []
    for number, process in enumerate(observed):
        its = cpus[number * each : (number + 1) * each]
        own = {core for cpu in its for core in cpu.cores}
        if set(process.cores) != own:
            ran, given = (", ".join(map(str, sorted(some))) for some in (process.cores, own))
            wrong.append(f"{ran} instead of {given}")
    variant = f"cores ({'; '.join(wrong)})"
    return Check(CORES, float(len(wrong)), 0.0, "as the system lists them", variant=variant)


def start(observed: Sequence[Observed]) -> Check:
    """The weights of the network when its first step was to be taken."""
    others = max(each.others for each in observed)
    variant = f"initial weights ({others} arrays are not the recipe's)"
    return Check(START, float(others), 0.0, "as they were loaded", variant=variant)


def rates(observed: Sequence[Observed], recipe: ScaledRecipe, steps: int) -> Check:
    """Compare the optimiser's own learning rates with the recipe's schedule."""
    found = np.array([rate for each in observed for _, rate in each.rates])
    wanted = [recipe.learning_rate_at(step, steps) for each in observed for step, _ in each.rates]
    if not len(found):
        return Check(RATE, None, None, "no step was taken")
    times = found / np.array(wanted)
    worst = int(np.argmax(np.abs(times - 1)))
    taken, read = sum(epoch.steps for epoch in observed[0].epochs), len(observed[0].rates)
    how = f"read from the optimiser at all {taken} steps"
    if read < taken:
        how = f"read from the optimiser at {read} of {taken} steps: the first and last "
        how += "of each epoch, and all of the warm-up"
    said = f"{found[worst]:.3g}, where the recipe has {wanted[worst]:.3g}"
    if np.ptp(times) <= ROUNDED * abs(times[0]):
        said = f"{times[0]:.4g} times the recipe's"
    difference = float(np.abs(times - 1).max())
    return Check(RATE, difference, ROUNDED, how, variant=f"learning rate ({said})")


def constants_of(recipe: Recipe) -> dict[str, float]:
    """The constants of the optimiser's rule, apart from the learning rate."""
    rule, (one, two) = recipe.rule, recipe.adam_betas
    own: dict[str, dict[str, float]] = {
        "sgd": {},
        "momentum": {"momentum": rule.momentum},
        "adam": {"beta 1": one, "beta 2": two, "epsilon": recipe.adam_epsilon},
    }
    return {"weight decay": rule.weight_decay} | own[rule.name]


def optimizer(observed: Sequence[Observed], recipe: ScaledRecipe) -> Check:
    """The optimiser's kind and constants, read from it after its last step."""
    wanted, name = constants_of(recipe.recipe), recipe.recipe.rule.name
    worst, said = 0.0, list[str]()
    if not any(each.rates for each in observed):
        return Check(OPTIMIZER, None, None, "no step was taken")
    for each in observed:
        kind, held = each.seen.optimizer, each.seen.constants.items()
        pairs = sorted((what, values) for what, values in held if len(values))
        if kind != name:
            worst, said = 1.0, [*said, f"{kind} instead of {name}"]
            continue
        for what, values in pairs:
            there = wanted.get(what, 1.0 if what == "rate factor" else 0.0)
            if what == "momentum" and each.seen.rate_in_velocity:
                if len(each.rates) == 1:
                    continue  # the rate before this process's only step is not known
                there *= each.rates[-1][1] / each.rates[-2][1]
            apart = float(np.abs(np.asarray(values) - there).max()) / (abs(there) or 1.0)
            if not apart <= 1e-5:
                few = f"{values[0]:g}" if np.ptp(values) == 0 else "not of all weights the same"
                said.append(f"{what} {few} instead of {there:g}")
            worst = max(worst, 1.0 if math.isnan(apart) else apart)
        said += [f"no {what}" for what in wanted if what not in dict(pairs)]
        if None not in (each.weights, each.seen.weights) and each.weights != each.seen.weights:
            worst = 1.0
            said.append(f"{each.seen.weights:,} of {each.weights:,} weights are trained")
    listed = ", ".join(f"{what} {value:g}" for what, value in wanted.items())
    fair = f"{name}, {listed}; read from it after the last step"
    variant = f"optimiser ({', '.join(dict.fromkeys(said))})"
    return Check(OPTIMIZER, worst, 1e-5, fair, variant=variant)


def amount(observed: Sequence[Observed], recipe: ScaledRecipe, steps: int) -> Check:
    """Check the steps that the clock counted, the optimiser's updates and the images received."""
    own = steps * recipe.recipe.batch_size * recipe.devices // len(observed)
    wrong: dict[str, float] = {}
    for each in observed:
        taken = sum(epoch.steps for epoch in each.epochs)
        for epoch in each.epochs:
            if (count := len(epoch.images)) != own:
                wrong[f"epoch {epoch.number}: {count} images instead of {own}"] = abs(own - count)
        updates, overflows = each.seen.updates, recipe.recipe.precision == "fp16"
        if off := updates_off(updates, taken, overflows=overflows):
            wrong[f"{updates} updates in {taken} steps"] = off
    seen = observed[0]
    taken, counted = sum(epoch.steps for epoch in seen.epochs), seen.seen.updates
    by = f"{counted} updates by the optimiser"
    if counted is None:
        by = "counted by the loop; the optimiser counts none"
    elif counted < taken:
        by += " (fp16 leaves out steps that overflow)"
    images = sum(len(epoch.images) for each in observed for epoch in each.epochs)
    said = f"{taken} steps, {by}; {images} images in {_epochs(len(seen.epochs))}"
    variant = f"amount ({', '.join(wrong)})"
    return Check(AMOUNT, float(max(wrong.values(), default=0)), 0.0, said, variant=variant)


def updates_off(updates: int | None, steps: int, *, overflows: bool) -> int:
    """The difference between the numbers of updates and steps; 0 if it is not known."""
    if updates is None or (overflows and updates < steps):
        return 0
    return abs(updates - steps)


def _epochs(count: int) -> str:
    return f"{count} epoch{'s' * (count != 1)}"


def other_labels(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Which images have other labels than those; of findings (images, findings), or classes."""
    outputs = math.prod(wanted.shape[1:])  # -1 would be refused where there are no images
    same = found.reshape(len(found), outputs) == wanted.reshape(len(wanted), outputs)
    return np.asarray(~same.all(axis=1))


def other_arrays(held: Mapping[str, np.ndarray], start: Mapping[str, np.ndarray]) -> int:
    """The number of a network's arrays that differ from the correct initial weights.

    MXNet gives the mean over its devices, which is rounded.
    """
    return sum(
        name not in held or not np.allclose(held[name], array, rtol=1e-6, atol=0, equal_nan=True)
        for name, array in start.items()
    )


def order(observed: Sequence[Observed], recipe: ScaledRecipe, images: int) -> Check:
    """The images of every epoch, against the order that seed and epoch give.

    Process k of a step has block k of the global batch. An image with the labels of another, or one
    that came twice in an epoch, fails the check; another order makes the training *different*.
    """
    if not observed[0].epochs:
        return Check(ORDER, None, None, "no epoch was trained in this process")
    misplaced = sum(epoch.misplaced for each in observed for epoch in each.epochs)
    steps, seed = recipe.steps(images), recipe.recipe.seed
    count = others = twice = 0
    for numbered in zip(*(each.epochs for each in observed), strict=True):
        order = np.random.default_rng([seed, numbered[0].number - 1]).permutation(images)
        blocks = order[: steps * recipe.global_batch_size].reshape(steps, len(observed), -1)
        for epoch, wanted in zip(numbered, blocks.swapaxes(0, 1), strict=True):
            same = epoch.images.shape == wanted.ravel().shape
            others += int((epoch.images != wanted.ravel()).sum()) if same else wanted.size
        read = np.concatenate([epoch.images for epoch in numbered])
        count, twice = count + len(read), twice + len(read) - len(np.unique(read))
    said, variant = f"{count} images of {_epochs(len(observed[0].epochs))}", None
    if misplaced:
        said = f"{misplaced} of {said} have other labels than their number's"
    elif twice:
        said = f"{twice} of {said} were there before in their epoch"
    else:
        variant = f"order ({others} of {said} are not where seed and epoch put them)"
    return Check(ORDER, float(misplaced + twice or others), 0.0, said, variant=variant)


def precision(observed: Sequence[Observed], recipe: Recipe, on_gpu: bool) -> Check:
    """Check the precision of the convolutions in training, and how the program was executed."""
    seen = observed[0].seen
    wanted = DTYPES[recipe.precision]
    threads = f"{seen.threads} thread{'s' * (seen.threads != 1)}"
    how = f"{seen.execution}, {threads}" if seen.threads else seen.execution
    said, asked = [], recipe.execution
    if asked != AS_USUAL and (asked == EAGER) != (seen.execution == EAGER):
        said.append(f"execution {seen.execution} instead of {asked}")
    if seen.convolutions is None and not said:
        return Check(PRECISION, None, None, f"{how}; what convolutions compute in cannot be read")
    found = {each.seen.convolutions for each in observed} - {wanted, None}
    said += [f"convolutions in {', '.join(map(str, found))} instead of {wanted}"] if found else []
    rounded = recipe.precision != "fp32"
    if on_gpu and seen.tf32 is not None and seen.tf32 != rounded:
        said.append(f"TF32 is {'on' if seen.tf32 else 'off'}")
    fair = f"convolutions in {wanted}; {how}"
    variant = f"precision ({', '.join(said)})"
    return Check(PRECISION, float(len(said)), 0.0, fair, variant=variant)


def evaluated(observed: Sequence[Observed]) -> list[Check]:
    """The rows on images and weights of all evaluations, the test included."""
    moments = [each.moments for each in observed]
    weights = [weight_checks.evaluated(moments), weight_checks.together(moments)]
    return [evaluations(observed), *weights]


def evaluations(observed: Sequence[Observed]) -> Check:
    """Whether each evaluation read the images of its split, each in its place."""
    every = [one for each in observed for one in each.evaluations]
    bad = [one for one in every if one.wrong or one.images != one.wanted]
    wrong = sum(one.wrong + abs(one.wanted - one.images) for one in bad)
    times = Counter(one.split for one in observed[0].evaluations)
    totals = {split: sum(one.wanted for one in every if one.split == split) for split in times}
    said = ", ".join(f"{n} x {split} of {totals[split] // n} images" for split, n in times.items())
    for one in bad[:1]:
        said = f"{one.split}: {one.images} of {one.wanted} images, {one.wrong} of them others"
    return Check(EVALUATED, float(wrong), 0.0, said)
