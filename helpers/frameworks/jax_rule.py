"""What an Optax rule does, according to its own steps: Optax keeps constants and rates in
functions.

A probe has a number in place of each weight, for the rule's own trial steps in float64.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

ONCE: dict[str, bool | int] = {"xla_backend_optimization_level": 0}
if jax.__version_info__ < (0, 11):  # later ones refuse the option, on GPUs too
    ONCE["xla_cpu_use_fusion_emitters"] = False
"""XLA's options for what is computed a few times at most.

Its emitters of fused loops take half of the time of compiling DenseNet121's gradients. Training has
them: without, its steps take 4 % longer (benchmarks/RESULTS.md).
"""
AT_ONCE = 4096
"""The steps whose rates are computed together."""
_TINY = 1e-8
"""A gradient by which Adam's epsilon shows."""


class Probe:
    """A rule, and a number in place of each weight that it updates."""

    def __init__(self, rule: optax.GradientTransformation, weights: Any) -> None:
        self.rule = rule
        self.weights = sum(each.size for each in jax.tree.leaves(weights))
        """How many numbers the rule updates."""
        self._like = jax.tree.map(lambda each: 0.0, weights)

    def rates(self, first: int) -> Iterator[float]:
        """The learning rates of the steps from number ``first`` on; no device is waited for."""
        known = self._rates(first)
        for step in count(first):
            place = (step - first) % AT_ONCE
            if place == 0 and step > first:
                known = self._rates(step)
            yield float(known[place])

    def _rates(self, first: int) -> np.ndarray:
        """How far each step goes with a gradient of 1 that is the first one."""
        with jax.enable_x64(True):
            zeros, ones = self._all(0.0), self._all(1.0)
            start = self.rule.init(zeros)

            def rate(step: jax.Array) -> jax.Array:
                change, _ = self.rule.update(ones, _at(start, step), zeros)
                return -jax.tree.leaves(change)[0]

            steps = jnp.arange(first, first + AT_ONCE, dtype=jnp.int32)
            return np.asarray(jax.jit(jax.vmap(rate))(steps))

    def constants(self) -> tuple[str, dict[str, np.ndarray]]:
        """The rule's name and constants, each with the values of all weights.

        Each weight takes three steps at a time: of 1 without a gradient, which shows the decay, of
        0 with a gradient of 1, and of 0 with a tiny one.
        """

        def trial(held: jax.Array, given: jax.Array) -> Any:
            weights, nothing = self._all(held), self._all(jnp.zeros_like(held))
            change, first = self.rule.update(self._all(given), self.rule.init(weights), weights)
            return change, first, self.rule.update(nothing, first, nothing)[1]

        with jax.enable_x64(True):
            held, given = jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, _TINY])
            # All steps by one program: of many weights, XLA takes long to compile the parts alone.
            program = jax.jit(jax.vmap(trial), compiler_options=ONCE)
            change, first, second = program(held, given)
        change = _columns(change)
        rates = -change[:, 1]
        found = {"rate factor": rates / rates[0]}
        kept = {name for name in ("mu", "nu", "trace") if _kept(first, name) is not None}
        if not kept:
            return "sgd", found | {"weight decay": change[:, 0] / change[:, 1]}
        if kept == {"trace"}:
            one, other = (_columns(_kept(each, "trace")) for each in (first, second))
            found |= {"weight decay": one[:, 0] / one[:, 1], "momentum": other[:, 1] / one[:, 1]}
            return "momentum", found
        if kept != {"mu", "nu"}:
            return f"a rule that keeps {', '.join(sorted(kept))}", {}
        mean, square = (_columns(_kept(first, name)) for name in ("mu", "nu"))
        found |= {"weight decay": mean[:, 0] / mean[:, 1]}
        found |= {"beta 1": 1 - mean[:, 1], "beta 2": 1 - square[:, 1]}
        # A first step goes gradient / (gradient + epsilon) of the rate.
        share = change[:, 2] / change[:, 1]
        found["epsilon"] = _TINY * (1 - share) / (share - _TINY)
        return "adam", found

    def _all(self, value: Any) -> Any:
        return jax.tree.map(lambda each: jnp.asarray(value, jnp.float64), self._like)


def _at(state: Any, step: jax.Array) -> Any:
    """A rule's state in which its schedules have come to a step."""

    def moved(part: Any) -> Any:
        return part._replace(count=step) if isinstance(part, optax.ScaleByScheduleState) else part

    return jax.tree.map(moved, state, is_leaf=lambda part: hasattr(part, "_fields"))


def _kept(state: Any, name: str) -> Any:
    return optax.tree_utils.tree_get(state, name)


def _columns(tree: Any) -> np.ndarray:
    """(weights, steps); ``optax.flatten`` has those of all weights in one array."""
    return np.hstack([np.asarray(each).reshape(3, -1) for each in jax.tree.leaves(tree)]).T
