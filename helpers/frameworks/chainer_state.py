"""Chainer's weights and optimiser state as NumPy arrays, and back.

Arrays have torchvision's layout already (OIHW, and output by input in the classifier); only the
names of parameters differ, so a link's path in the model must be torchvision's. BatchNorm counts
nothing like ``num_batches_tracked``, and its ``avg_var`` is the unbiased variance, as PyTorch's is.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import chainer
import numpy as np
from chainer.backends import cuda

from helpers.frameworks import weight_layout
from helpers.networks import custom

Model: TypeAlias = chainer.Chain

# What a link calls its arrays, and what torchvision calls them.
_NAMES = {
    "W": "weight",
    "b": "bias",
    "gamma": "weight",
    "beta": "bias",
    "avg_mean": "running_mean",
    "avg_var": "running_var",
}

# What Chainer's Adam calls its moments, and what a checkpoint does.
_MOMENTS = {"m": "first", "v": "second"}  # Adam's; momentum's v is its velocity
_VELOCITY = {"v": "first"}


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    arrays = dict(_arrays(model))
    wrong = sorted(arrays.keys() ^ weights.keys())
    wrong += [name for name in arrays.keys() & weights if arrays[name].shape != weights[name].shape]
    weight_layout.refuse(wrong)
    with chainer.using_device(model.device):
        for name, array in arrays.items():
            array[...] = model.xp.asarray(weights[name], dtype=array.dtype)


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    return {name: cuda.to_cpu(array).copy() for name, array in _arrays(model)}


def load_optimizer(replica: Any, state: Mapping[str, np.ndarray]) -> None:
    optimizer = replica.optimizer
    optimizer.t, (moments, factor) = int(state["step"]), _kept(optimizer)
    for name, parameter in trained(replica.network):
        rule = parameter.update_rule
        rule.t = optimizer.t
        with chainer.using_device(parameter.device):
            kept = {
                ours: parameter.xp.array(factor * state[f"{moment}/{name}"])
                for ours, moment in moments.items()
                if f"{moment}/{name}" in state
            }
            rule._state = kept or None


def dump_optimizer(replica: Any) -> dict[str, np.ndarray]:
    moments, factor = _kept(replica.optimizer)
    found = {
        f"{moment}/{name}": cuda.to_cpu(parameter.update_rule.state[ours]) / factor
        for name, parameter in trained(replica.network)
        for ours, moment in moments.items()
    }
    return found | {"step": np.array(replica.optimizer.t)}


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """Arrays by Chainer's names, as ``NpzDeserializer`` reads them; the model keeps everything
    else. The networks of ``helpers.networks.chainer`` have the recipe's BatchNorm already.
    """
    found = {name: np.asarray(value) for name, value in _held(model)}
    for name in found:
        if (known := _canonical(model, name)) in weights:
            found[name] = np.asarray(weights[known])
    return found


def trained(model: Model) -> Iterator[tuple[str, chainer.Parameter]]:
    """Canonical name and parameter of everything that is trained."""
    return ((_canonical(model, path[1:]), each) for path, each in model.namedparams())


def dtype_of(model: Model) -> np.dtype:
    """The type the model computes in."""
    return next(model.params()).dtype


def learning_rate(optimizer: Any) -> float:
    return float(optimizer.alpha if hasattr(optimizer, "alpha") else optimizer.lr)


def _kept(optimizer: Any) -> tuple[dict[str, str], float]:
    """What the optimiser keeps for each weight, its names and a checkpoint's, and times what.

    Chainer's velocity of momentum points downhill, and has the rate in it unless it is corrected.
    """
    if isinstance(optimizer, chainer.optimizers.Adam):
        return _MOMENTS, 1.0
    corrected = isinstance(optimizer, chainer.optimizers.CorrectedMomentumSGD)
    factor = -1.0 if corrected else -learning_rate(optimizer)
    return (_VELOCITY if getattr(optimizer, "momentum", 0) else {}), factor


def _held(model: Model) -> Iterator[tuple[str, Any]]:
    """Chainer's own name and value of everything that links keep: ``features/conv0/W``."""
    for path, link in model.namedlinks():
        for name in sorted({*link._params, *link._persistent}):
            value = getattr(link, name)
            held = value.array if isinstance(value, chainer.Parameter) else value
            yield f"{path}/{name}".lstrip("/"), held


def _canonical(model: Model, name: str) -> str:
    """The canonical name of what Chainer calls ``name``; a custom network keeps Chainer's."""
    link, _, own = name.rpartition("/")
    if custom.is_own(model) or own not in _NAMES:
        return name
    return f"{link.replace('/', '.')}.{_NAMES[own]}"


def _arrays(model: Model) -> Iterator[tuple[str, Any]]:
    """Canonical name and array of every parameter and running statistic."""
    for name, value in _held(model):
        if isinstance(value, chainer.get_array_types()):
            yield _canonical(model, name), value
