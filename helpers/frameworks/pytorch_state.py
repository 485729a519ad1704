"""PyTorch's weights and optimiser state as NumPy arrays, and back.

torchvision's layout is the canonical one, so weights need no mapping; ``num_batches_tracked``
counts steps and is not a weight.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from helpers.frameworks import weight_layout
from helpers.networks import custom
from helpers.recipe import RECIPES

Model: TypeAlias = torch.nn.Module


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    state = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    weight_layout.refuse(
        [name for name in missing if not name.endswith("num_batches_tracked")] + unexpected
    )


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    return {
        name: tensor.detach().cpu().numpy().copy()
        for name, tensor in model.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }


def load_optimizer(replica: Any, state: Mapping[str, np.ndarray]) -> None:
    optimizer = replica.optimizer
    if "scale" in state and replica.scaler.is_enabled():
        scaler = replica.scaler
        scaler.load_state_dict(scaler.state_dict() | {"scale": float(state["scale"])})
    adam, fused = isinstance(optimizer, torch.optim.Adam), optimizer.param_groups[0]["fused"]
    for name, parameter in _trained(replica.network):
        found = optimizer.state[parameter] = {
            theirs: torch.empty_like(parameter).copy_(torch.tensor(state[f"{moment}/{name}"]))
            for moment, theirs in _moments(optimizer).items()
        }
        if adam:
            device = parameter.device if fused else None
            found["step"] = torch.tensor(float(state["step"]), device=device)


def dump_optimizer(replica: Any) -> dict[str, np.ndarray]:
    optimizer, scaler = replica.optimizer, getattr(replica, "scaler", None)
    found = {} if scaler is None else {"scale": np.array(scaler.get_scale())}
    for name, parameter in _trained(replica.network):
        state = optimizer.state[parameter]
        for moment, theirs in _moments(optimizer).items():
            found[f"{moment}/{name}"] = state[theirs].cpu().numpy().copy()
        found["step"] = np.array(int(state.get("step", 0)))  # only Adam counts
    return found


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """A state dict; counters of BatchNorm's batches are the model's own."""
    recipe = RECIPES["chexnet"]
    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d) and not custom.is_own(model):
            layer.eps, layer.momentum = recipe.bn_epsilon, recipe.bn_momentum
    found = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
    counters = {
        name: each
        for name, each in model.state_dict().items()
        if name.endswith("num_batches_tracked")
    }
    return counters | found


def _trained(model: Model) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """The weights that an optimiser changes; a custom network may have frozen ones."""
    return ((name, each) for name, each in model.named_parameters() if each.requires_grad)


def _moments(optimizer: Any) -> dict[str, str]:
    """What the optimiser keeps for each weight: a checkpoint's names and its own."""
    if isinstance(optimizer, torch.optim.Adam):
        return {"first": "exp_avg", "second": "exp_avg_sq"}
    return {"first": "momentum_buffer"} if optimizer.param_groups[0]["momentum"] else {}
