"""What an Optax rule does, by its own trial steps: it keeps constants and rates in functions.

``like`` is a tree with a number in place of each weight; all is computed in float64.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

ONCE: dict[str, bool | int] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
}
"""XLA's options for what is computed a few times: compiling DenseNet121's gradients takes half as
long. A step of training would take 4 % longer (benchmarks/RESULTS.md)."""
AT_ONCE = 4096
"""The steps whose rates are computed together."""
_TINY = 1e-8
"""A gradient by which Adam's epsilon shows."""


def rates(rule: optax.GradientTransformation, like: Any, first: int) -> Iterator[float]:
    """The rates of the steps from ``first`` on: how far a step goes with a first gradient of 1."""

    def rate(step: jax.Array) -> jax.Array:
        def moved(one: Any) -> Any:  # a schedule has come to the step
            return one._replace(count=step) if isinstance(one, optax.ScaleByScheduleState) else one

        zeros = _all(like, 0.0)
        state = jax.tree.map(moved, rule.init(zeros), is_leaf=lambda one: hasattr(one, "_fields"))
        change, _ = rule.update(_all(like, 1.0), state, zeros)
        return -jax.tree.leaves(change)[0]

    while True:
        with jax.enable_x64(True):
            steps = jnp.arange(first, first + AT_ONCE, dtype=jnp.int32)
            found = np.asarray(jax.jit(jax.vmap(rate))(steps))
        yield from found.tolist()
        first += AT_ONCE


def constants(rule: optax.GradientTransformation, like: Any) -> tuple[str, dict[str, np.ndarray]]:
    """The rule's name and constants, each with the values of all weights.

    Each weight takes three steps at a time: of 1 without a gradient, which shows the decay, of 0
    with a gradient of 1, and of 0 with a tiny one.
    """

    def trial(held: jax.Array, given: jax.Array) -> Any:
        weights, nothing = _all(like, held), _all(like, jnp.zeros_like(held))
        change, first = rule.update(_all(like, given), rule.init(weights), weights)
        return change, first, rule.update(nothing, first, nothing)[1]

    with jax.enable_x64(True):
        held, given = jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, _TINY])
        # All steps by one program: of many weights, XLA takes long to compile the parts alone.
        program = jax.jit(jax.vmap(trial), compiler_options=ONCE)
        change, *states = program(held, given)
    change = -_columns(change)
    first, second = (
        {
            name: _columns(kept)
            for name in ("mu", "nu", "trace")
            if (kept := optax.tree_utils.tree_get(state, name)) is not None
        }
        for state in states
    )
    found = {"rate factor": change[:, 1] / change[0, 1]}
    if not first:
        return "sgd", found | {"weight decay": change[:, 0] / change[:, 1]}
    if [*first] == ["trace"]:
        one = first["trace"]
        found |= {"weight decay": one[:, 0] / one[:, 1]}
        return "momentum", found | {"momentum": second["trace"][:, 1] / one[:, 1]}
    if [*first] != ["mu", "nu"]:
        return f"a rule that keeps {', '.join(first)}", {}
    mean, square = first["mu"], first["nu"]
    found |= {"weight decay": mean[:, 0] / mean[:, 1]}
    found |= {"beta 1": 1 - mean[:, 1], "beta 2": 1 - square[:, 1]}
    # A first step goes gradient / (gradient + epsilon) of the rate.
    share = change[:, 2] / change[:, 1]
    return "adam", found | {"epsilon": _TINY * (1 - share) / (share - _TINY)}


def _all(like: Any, value: Any) -> Any:
    return jax.tree.map(lambda each: jnp.asarray(value, jnp.float64), like)


def _columns(tree: Any) -> np.ndarray:
    """(weights, steps); ``optax.flatten`` has those of all weights in one array."""
    return np.hstack([np.asarray(each).reshape(3, -1) for each in jax.tree.leaves(tree)]).T
