"""The training-loop check of BatchNorm: whose running statistics are kept after a step."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from helpers.fairness import reference
from helpers.fairness.check_results import Check
from helpers.recipe import RECIPES

AVERAGE = "the average of all replicas'"
GLOBAL = (
    "the global batch's: in training every device normalises with those of all devices' images, "
    "which predicts the variance"
)


def survivor(after: Mapping[str, np.ndarray], shares: Sequence[np.ndarray], limit: float) -> Check:
    """Whose running mean is in the weights after one step, of ``shares`` of grey images.

    The mean of the global batch is the average of the replicas' means. Its variance is not that of
    theirs, by far: the shares differ. By that a global batch is known for what it is.
    """
    name = "which replica's running statistics are kept"
    if len(shares) == 1:
        return Check(name, None, None, "there is one device")
    values = [reference.after_conv0(reference.shallow_arrays(), share) for share in shares]
    kept = [_kept("mean", value.mean(axis=(0, 2, 3))) for value in values]
    candidates = {f"replica {number}'s": mean for number, mean in enumerate(kept)}
    candidates[AVERAGE] = np.mean(kept, axis=0)
    found = after["features.norm0.running_mean"]
    errors = {who: reference.relative(found, mean) for who, mean in candidates.items()}
    nearest = min(errors, key=lambda who: errors[who])
    if nearest == AVERAGE:
        own, together = _variance_errors(after, values)
        if together < own:
            return Check(name, own, limit, GLOBAL, max(errors[AVERAGE], together))
    check = Check(name, errors[nearest], limit, nearest)
    if check.verdict == "pass":
        return check
    return replace(check, reason=f"none of them; nearest is {nearest}")


def _variance_errors(
    after: Mapping[str, np.ndarray], values: Sequence[np.ndarray]
) -> tuple[float, float]:
    """How far the running variance is from the replicas' average, and from the global batch's.

    Computed from each replica's ``values``; frameworks divide by n or by n - 1.
    """

    def error(variances: Sequence[np.ndarray]) -> float:
        candidates = (_kept("var", variance) for variance in variances)
        found = after["features.norm0.running_var"]
        return min(reference.relative(found, candidate) for candidate in candidates)

    axes, joined = (0, 2, 3), np.concatenate(values)
    own = [np.mean([value.var(axis=axes, ddof=by) for value in values], axis=0) for by in (0, 1)]
    return error(own), error([joined.var(axis=axes, ddof=by) for by in (0, 1)])


def _kept(part: str, of_batch: np.ndarray) -> np.ndarray:
    """The running ``mean`` or ``var`` after one step on a batch with that one."""
    momentum = RECIPES["chexnet"].bn_momentum
    old = reference.shallow_arrays()[f"features.norm0.running_{part}"]
    return (1 - momentum) * old + momentum * of_batch
