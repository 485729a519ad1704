"""Flax's weights and Optax's state as NumPy arrays, and back.

Convolutions are HWIO here, OIHW in the canonical layout, and the classifier is transposed. Random
keys are no weights.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.flatten_util import ravel_pytree

from helpers.frameworks import weight_layout
from helpers.networks import custom
from helpers.networks.weights import under

Model: TypeAlias = nnx.Module

OF_WEIGHTS = nnx.Not(nnx.RngState)
_CANONICAL = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}
_MOMENTS = {"mu": "first", "nu": "second", "trace": "first"}
"""Optax's names of what it keeps for each weight: of Adam, and of momentum."""


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    """Their dtype becomes the model's."""
    doubles = any(array.dtype == np.float64 for array in weights.values())
    with jax.enable_x64(doubles):
        nnx.update(model, state_of(model, weights))


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    return arrays_of(nnx.state(model, OF_WEIGHTS), custom.is_own(model))


def load_optimizer(replica: Any, state: Mapping[str, np.ndarray]) -> None:
    model, optimizer = replica.network, replica.optimizer
    is_own = custom.is_own(model)
    optimizer.step[...] = jnp.array(int(state["step"]), jnp.uint32)
    for kept in _parts(optimizer):
        if hasattr(kept, "mu"):  # Adam corrects its moments by the steps that it counted
            kept.count[...] = jnp.array(int(state["step"]), jnp.int32)
        for moment, name in _moments(kept):
            filled = _filled(nnx.state(model, optimizer.wrt), under(f"{name}/", state), is_own)
            if isinstance(moment, nnx.Variable):  # ``optax.flatten`` has all weights' in one
                moment[...] = ravel_pytree(nnx.as_pure(filled))[0]
            else:
                nnx.update(moment, filled)


def dump_optimizer(replica: Any) -> dict[str, np.ndarray]:
    """The step count is that of ``nnx.Optimizer``."""
    model, optimizer = replica.network, replica.optimizer
    held = nnx.state(model, optimizer.wrt)
    found = {
        f"{name}/{weight}": array
        for kept in _parts(optimizer)
        for moment, name in _moments(kept)
        for weight, array in arrays_of(_as_tree(moment, held), custom.is_own(model)).items()
    }
    return found | {"step": np.array(int(optimizer.step[...]))}


def set_step(replica: Any, step: int) -> None:
    """Optax's schedules count the steps themselves."""
    for kept in _parts(replica.optimizer):
        if isinstance(kept, optax.ScaleByScheduleState):
            kept.count[...] = jnp.array(step, jnp.int32)


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """A state for ``nnx.update``; the networks are built with the recipe's epsilon and momentum."""
    return _filled(nnx.state(model, OF_WEIGHTS), weights, custom.is_own(model))


def arrays_of(state: Any, is_own: bool) -> dict[str, np.ndarray]:
    """A copy of a state's arrays in the canonical layout."""
    flat = nnx.to_flat_state(state)
    return {_name(path, is_own): weight_layout.first(np.array(each[...])) for path, each in flat}


def _parts(optimizer: Any) -> list[Any]:
    """The states of the transformations that an optimiser is a chain of."""
    return jax.tree.leaves(optimizer.opt_state, is_leaf=lambda each: hasattr(each, "_fields"))


def _moments(kept: Any) -> Iterator[tuple[Any, str]]:
    """What a transformation keeps of each weight, and its name in a checkpoint."""
    for theirs, name in _MOMENTS.items():
        if hasattr(kept, theirs):
            yield getattr(kept, theirs), name


def _as_tree(moment: Any, held: Any) -> Any:
    """What ``optax.flatten`` keeps in one array, as a tree like the weights'.

    NumPy does it: over nodes rank 0 saves alone, and no process may give JAX work alone.
    """
    if not isinstance(moment, nnx.Variable):
        return moment
    leaves, tree = jax.tree.flatten(held)
    ends = np.cumsum([each.size for each in leaves])
    parts = np.split(np.asarray(moment[...]), ends[:-1])
    return jax.tree.unflatten(
        tree, [part.reshape(each.shape) for part, each in zip(parts, leaves, strict=True)]
    )


def _name(path: tuple[Any, ...], is_own: bool) -> str:
    """torchvision's name of a variable; in a custom network, its path."""
    *way, last = map(str, path)
    return ".".join([*way, last if is_own else _CANONICAL.get(last, last)])


def _filled(state: Any, arrays: Mapping[str, np.ndarray], is_own: bool) -> Any:
    """A state with these canonical arrays in it; every one of them, and no other."""
    flat = dict(nnx.to_flat_state(state))
    names = {_name(path, is_own): variable for path, variable in flat.items()}
    weight_layout.check(names, arrays)
    return nnx.from_flat_state(
        {
            path: variable.replace(jnp.array(weight_layout.last(arrays[_name(path, is_own)])))
            for path, variable in flat.items()
        }
    )
