"""The framework-specific helper functions for JAX.

Peculiar to JAX: one process drives all devices of its node, and those of all nodes form a mesh of
one axis, ``replica``; ``devices`` holds the node's, and how nodes are joined is in ``jax_ranks``. A
model is a module of Flax NNX, called as ``model(images)`` after
``model.train()`` or ``model.eval()``. Images and weights are channels-last: convolutions are HWIO
here, OIHW in the canonical layout, and the classifier is transposed. JAX computes in float64 only
inside ``jax.enable_x64``, where :func:`exact` and what is given its model compute. The same seed
gives the same bits on CPUs.

XLA compiles each step before it runs, in every run: kept programs would make a first step depend on
which runs there were before. What the fairness check computes a few times is not optimised
(``_ONCE``).
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from helpers.errors import UnsupportedError
from helpers.frameworks import capabilities, jax_ranks, memory, precisions, weight_layout
from helpers.frameworks.interface import Seen, Watch
from helpers.frameworks.jax_ranks import AXIS
from helpers.networks import custom
from helpers.networks.jax import Convolution, InTurn, Network, Norm
from helpers.networks.weights import under
from helpers.recipe import RECIPES

NAME = "JAX"
KERNEL = "jax"

Device: TypeAlias = jax.Device
Model: TypeAlias = nnx.Module

# What JAX cannot do, and why.
SKIPPED = {
    **precisions.ON_GPUS_ONLY,
    "the same bits from the same seed on GPUs": (
        "XLA picks its algorithms by their speed, which may be others in another run, and some "
        "add in any order (its flag --xla_gpu_deterministic_ops would end that, at a price in "
        "speed)"
    ),
}

LESS_OPTIMISED = "--xla_backend_optimization_level=1"
"""XLA's flag for CPUs, to compile sooner; steps were as fast with it (benchmarks/RESULTS.md). Flags
of the user's own take its place."""

_ONCE: dict[str, bool | int] = {"xla_backend_optimization_level": 0}
if jax.__version_info__ < (0, 11):  # later ones refuse the option, on GPUs too
    _ONCE["xla_cpu_use_fusion_emitters"] = False
"""XLA's options for what the fairness check computes, a few times at most.

Its emitters of fused loops for CPUs take half of the time of compiling DenseNet121's gradients
(15.4 s of processor time with them, 7.7 without, one run each), which are computed as fast without.
Training has them: without, its steps take 4 % longer (benchmarks/RESULTS.md).
"""
_CANONICAL = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}
_MOMENTS = {"mu": "first", "nu": "second", "trace": "first"}
"""Optax's names of what it keeps for each weight: of Adam, and of momentum."""
_OF_WEIGHTS = nnx.Not(nnx.RngState)
_CUDA = {
    "jax-cuda12-plugin": {
        "cuda": "nvidia-cuda-runtime-cu12",
        "cudnn": "nvidia-cudnn-cu12",
        "nccl": "nvidia-nccl-cu12",
    },
    "jax-cuda13-plugin": {
        "cuda": "nvidia-cuda-runtime",
        "cudnn": "nvidia-cudnn-cu13",
        "nccl": "nvidia-nccl-cu13",
    },
}
"""NVIDIA's packages that each of JAX's plugins loads. Others may be beside them for PyTorch."""


def versions() -> dict[str, str]:
    found = {name: metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax", "grain")}
    for plugin, packages in _CUDA.items():
        if _installed(plugin):
            known = {library: _installed(package) for library, package in packages.items()}
            found |= {library: version for library, version in known.items() if version}
    return found


def _installed(package: str) -> str | None:
    """The version of a package; None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def list_devices(kind: str, count: int, gpus: int | None = None) -> list[Device]:
    """Call it before JAX computes anything: the devices cannot change afterwards (RuntimeError)."""
    if why := capabilities.why_not_shared(KERNEL, count, gpus or 0):
        raise UnsupportedError(why)
    try:
        if kind == "gpu":  # of the others JAX would take the memory
            jax.config.update("jax_cuda_visible_devices", ",".join(map(str, range(count))))
        else:
            os.environ.setdefault("XLA_FLAGS", LESS_OPTIMISED)
            jax.config.update("jax_platforms", "cpu")
            # as XLA_FLAGS=--xla_force_host_platform_device_count does
            jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # JAX has started: what was made then is what there is
        if len(jax.local_devices(backend=kind)) < count:
            raise
    return jax.local_devices(backend=kind)[:count]


def configure(precision: str, kind: str) -> None:
    precisions.check(precision, kind, SKIPPED)
    # By default JAX rounds convolutions and matrix products on a GPU to TF32.
    rounded = "float32" if precision == "fp32" else "tensorfloat32"
    jax.config.update("jax_default_matmul_precision", rounded)
    if kind == "cpu":  # where XLA has no memory pool of its own
        memory.keep_freed()


def synchronize(devices: Sequence[Device]) -> None:
    # Each works in order, so this comes last.
    jax.block_until_ready([jnp.zeros((), device=device) + 1 for device in devices])


def peak_bytes(devices: Sequence[Device]) -> int | None:
    # By default XLA's pool is three quarters of a GPU from the start.
    found = [device.memory_stats() for device in devices]
    return max((each["peak_bytes_in_use"] for each in found if each), default=None)


def completion(result: Any) -> Callable[[], None] | None:
    if all(array.is_ready() for array in jax.tree.leaves(result)):
        return None
    return partial(jax.block_until_ready, result)


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    """Their dtype becomes the model's."""
    doubles = any(array.dtype == np.float64 for array in weights.values())
    with jax.enable_x64(doubles):
        nnx.update(model, _filled(nnx.state(model, _OF_WEIGHTS), weights, custom.is_own(model)))


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    return _arrays(nnx.state(model, _OF_WEIGHTS), custom.is_own(model))


def load_optimizer(
    model: Model, optimizer: Any, state: Mapping[str, np.ndarray], scaler: Any = None
) -> None:
    """The factor of fp16's loss is the optimiser's own, so there is no ``scaler``."""
    if not state:
        return
    params = nnx.state(model, nnx.Param)
    new = {
        theirs: _in_one(_filled(params, under(f"{_MOMENTS[theirs]}/", state), custom.is_own(model)))
        for theirs in _moments(optimizer)
    }
    if "mu" in new:  # only Adam counts
        new["count"] = jnp.array(int(state["step"]), jnp.int32)
    optimizer.state = optax.tree_utils.tree_set(optimizer.state, **new)
    optimizer.scale = jnp.array(float(state["scale"]), jnp.float32)


def dump_optimizer(model: Model, optimizer: Any, scaler: Any = None) -> dict[str, np.ndarray]:
    """The factor of fp16's loss stays 1 in other precisions."""
    params = nnx.state(model, nnx.Param)
    found = {
        f"{_MOMENTS[theirs]}/{name}": array
        for theirs, moment in _moments(optimizer).items()
        for name, array in _arrays(_as_tree(moment, params), custom.is_own(model)).items()
    }
    step = optax.tree_utils.tree_get(optimizer.state, "count", 0)
    return found | {"step": np.array(int(step)), "scale": np.array(optimizer.scale)}


def learning_rate(optimizer: Any) -> float:
    return float(optimizer.rate)


def watch(replica: Any) -> Watch:
    optimizer, types, call = replica.optimizer, set(), nnx.Conv.__call__
    before = _updates(optimizer)

    def noting(layer: nnx.Conv, *given: Any, **options: Any) -> Any:
        output = call(layer, *given, **options)
        types.add(output.dtype.name)
        return output

    nnx.Conv.__call__ = noting  # called where a step is traced, never where it is run

    def seen() -> Seen:
        nnx.Conv.__call__ = call
        after = _updates(optimizer)
        name, found = _probed(
            optimizer.rule,
            sum(each.size for each in jax.tree.leaves(nnx.state(replica.network, nnx.Param))),
        )
        return Seen(
            name,
            found,
            None if after is None or before is None else after - before,
            "/".join(sorted(types)) or None,
            "compiled (jax.jit, XLA)",
            jax.config.jax_default_matmul_precision != "float32",
        )

    return Watch(partial(learning_rate, replica.optimizer), seen)


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    with jax.enable_x64(True):
        return build_model({name: array.astype(np.float64) for name, array in weights.items()})


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    recipe = RECIPES["chexnet"]

    def made() -> Model:
        rngs = nnx.Rngs(0)
        momentum, epsilon = 1 - recipe.bn_momentum, recipe.bn_epsilon
        norm = Norm(64, momentum=momentum, epsilon=epsilon, rngs=rngs)
        features = InTurn({"conv0": Convolution(3, 64, 7, 2, rngs=rngs), "norm0": norm})
        layers = {"features": features, "relu": jax.nn.relu}
        return Network(layers, "classifier", nnx.Linear(64, 14, rngs=rngs))

    model: Model = nnx.eval_shape(made)
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    model.eval()
    with _as_weights(model) as dtype:
        found = _forward(*nnx.split(model), _batch(images, dtype))[0]
    return np.array(found)


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """In full float32 whatever the run's precision: TF32's rounding would hide a wrong epsilon."""
    model.train()
    with _as_weights(model) as dtype, jax.default_matmul_precision("float32"):
        found, after = _forward(*nnx.split(model), _batch(images, dtype))
        return np.array(found), _arrays(after.filter(_OF_WEIGHTS), custom.is_own(model))


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """Summed over a mesh of the devices."""
    model.eval()
    order, counts = _equal_shares(len(images), len(devices))
    weights = counts / targets.size
    mesh = Mesh(np.array(devices), (AXIS,))
    shared, everywhere = NamedSharding(mesh, P(AXIS)), NamedSharding(mesh, P())
    with _as_weights(model) as dtype:
        graph, params, rest = nnx.split(model, nnx.Param, ...)
        held = jax.tree.map(partial(_cut, everywhere), (params, rest))
        batch = _batch(images[order], dtype), targets[order].astype(dtype), weights.astype(dtype)
        split = jax.tree.map(partial(_cut, shared), batch)
        loss, found = _gradients(graph, mesh, *held, *split)
        return float(loss), _arrays(found, custom.is_own(model))


def rank_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """Summed over a mesh of the devices of all ranks."""
    return gradients(model, images, targets, jax_ranks.all_devices(devices))


def through_layer(
    layer: str, arrays: Mapping[str, np.ndarray], device: Device
) -> dict[str, np.ndarray]:
    with jax.default_device(device):
        given = {name: _batch(array, jnp.float32) for name, array in arrays.items() if _is_4d(name)}
        given |= {n: jnp.asarray(weight_layout.last(a)) for n, a in arrays.items() if not _is_4d(n)}
        gradient = given.pop("gradient")
        output, back = jax.vjp(_LAYERS[layer], given)
        (found,) = back(gradient)
    pictures = {"output": output, "images": found.pop("images")}
    return {
        **{name: np.array(array).transpose(0, 3, 1, 2) for name, array in pictures.items()},
        **{name: weight_layout.first(np.array(array)) for name, array in found.items()},
    }


def matrix_product(size: int, dtype: str, device: Device) -> Callable[[], None]:
    with jax.default_device(device):
        row = jnp.linspace(-1, 1, size)
        matrix = jnp.outer(row, row).astype(dtype)

    def multiply() -> None:
        jax.block_until_ready(matrix @ matrix)

    return multiply


def all_reduced(shares: Sequence[np.ndarray], devices: Sequence[Device]) -> list[np.ndarray]:
    """Uses ``psum`` over a mesh, with NCCL between GPUs."""
    mesh = Mesh(np.array(jax_ranks.all_devices(devices)), (AXIS,))
    spread = jax_ranks.shard(np.stack(shares), NamedSharding(mesh, P(AXIS)))
    reduce = jax.shard_map(
        lambda own: jax.lax.psum(own, AXIS),
        mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS), check_vma=False,
    )  # fmt: skip
    return list(jax_ranks.own_part(jax.jit(reduce)(spread)))


class DeviceLosses:
    def __init__(self, devices: Sequence[Device]) -> None:
        with jax.enable_x64(True):
            self._sums = [jnp.zeros(2, jnp.float64, device=device) for device in devices]

    def add(self, position: int, loss: Any, images: int) -> None:
        with jax.enable_x64(True):
            self._sums[position] = _added(self._sums[position], loss, images)

    def mean(self) -> float:
        own = np.sum([np.asarray(part) for part in self._sums], axis=0)
        loss, images = jax_ranks.gathered(own).sum(axis=0)
        return float(loss / images)


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """Each node has one process."""
    return float(jax_ranks.gathered(np.array(seconds)).max())


def _equal_shares(images: int, devices: int) -> tuple[np.ndarray, np.ndarray]:
    """Which image each device gets at each place of its share, and whether it counts there.

    All shares are as long as the longest, as ``shard_map`` requires. A shorter one is filled up
    with images that do not count.
    """
    longest = -(-images // devices)
    parts = np.array_split(np.arange(images), devices)
    order = np.concatenate([np.resize(part, longest) for part in parts])
    return order, np.concatenate([np.arange(longest) < len(part) for part in parts])


@contextmanager
def _as_weights(model: Model) -> Iterator[Any]:
    """The dtype of a model's weights; inside JAX computes in it, and not in 32 bits for 64."""
    dtype = jax.tree.leaves(nnx.state(model, nnx.Param))[0].dtype
    with jax.enable_x64(dtype == np.float64):
        yield dtype


@partial(jax.jit, static_argnums=0, compiler_options=_ONCE)
def _forward(graph: Any, state: Any, images: jax.Array) -> tuple[jax.Array, Any]:
    model = nnx.merge(graph, state, copy=True)
    return model(images), nnx.state(model)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=_ONCE)
def _gradients(graph: Any, mesh: Mesh, *given: Any) -> tuple[jax.Array, Any]:
    """The loss and the gradients, summed over the mesh's devices."""

    def replica(params: Any, rest: Any, images: Any, targets: Any, weights: Any) -> Any:
        def loss_of(params: Any) -> jax.Array:
            output = nnx.merge(graph, params, rest)(images)
            each = optax.sigmoid_binary_cross_entropy(output, targets).sum(axis=1)
            return (each * weights).sum()

        return jax.lax.psum(jax.value_and_grad(loss_of)(params), AXIS)

    specs = P(), P(), P(AXIS), P(AXIS), P(AXIS)
    # Unchecked, a gradient is each device's own, until it is summed above.
    mapped = jax.shard_map(replica, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
    found: tuple[jax.Array, Any] = mapped(*given)
    return found


@jax.jit
def _added(total: jax.Array, loss: jax.Array, images: jax.Array) -> jax.Array:
    return total + jnp.stack([loss.astype(total.dtype).reshape(()) * images, images])


def _convolution(given: dict[str, jax.Array]) -> jax.Array:
    layout = "NHWC", "HWIO", "NHWC"
    return jax.lax.conv_general_dilated(
        given["images"], given["weight"], (1, 1), "SAME", dimension_numbers=layout
    )


def _norm(given: dict[str, jax.Array]) -> jax.Array:
    x = given["images"]
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    factor = jax.lax.rsqrt(variance + RECIPES["chexnet"].bn_epsilon) * given["scale"]
    return (x - mean) * factor + given["offset"]


def _pooling(given: dict[str, jax.Array]) -> jax.Array:
    return nnx.avg_pool(nnx.max_pool(given["images"], (3, 3), (2, 2)), (2, 2), (2, 2))


_LAYERS = {"convolution": _convolution, "BatchNorm": _norm, "pooling": _pooling}


def _updates(optimizer: Any) -> int | None:
    """How many updates an optimiser has counted; Optax's momentum and plain descent count none."""
    found = optax.tree_utils.tree_get(optimizer.state, "count", None)
    return None if found is None else int(found)


def _probed(rule: optax.GradientTransformation, weights: int) -> tuple[str, dict[str, Any]]:
    """A rule's name and constants, as its own steps tell them: Optax keeps them in functions.

    A first step with weights of 1 and no gradient shows the decay of each weight, steps with a
    gradient of 1 the betas or the momentum, and one with a gradient of 1e-8 Adam's epsilon.
    """
    zero, one = jnp.zeros(weights), jnp.ones(weights)
    start = rule.init(zero)
    kept = {name for name in _MOMENTS if optax.tree_utils.tree_get(start, name, None) is not None}

    def step(state: Any, gradient: Any, held: Any) -> tuple[Any, Any]:
        return rule.update(gradient, state, held)

    def moment(state: Any, name: str) -> Any:
        return optax.tree_utils.tree_get(state, name)

    def ends(values: Any) -> tuple[float, float]:
        return float(jnp.min(values)), float(jnp.max(values))

    if not kept:
        return "sgd", {"weight decay": ends(step(start, zero, one)[0])}
    _, first = step(start, one, zero)
    decayed = step(start, zero, one)[1]
    if kept not in ({"trace"}, {"mu", "nu"}):
        return f"a rule that keeps {', '.join(sorted(kept))}", {}
    if kept == {"trace"}:
        second = step(first, zero, zero)[1]
        return "momentum", {
            "weight decay": ends(moment(decayed, "trace")),
            "momentum": ends(moment(second, "trace")),
        }
    small = jnp.full(weights, 1e-8)
    change = step(start, small, zero)[0]
    return "adam", {
        "weight decay": ends(moment(decayed, "mu") / moment(first, "mu")),
        "beta 1": ends(1 - moment(first, "mu")),
        "beta 2": ends(1 - moment(first, "nu")),
        "epsilon": ends(small / change - small),
    }


def _moments(optimizer: Any) -> dict[str, jax.Array]:
    """What Optax keeps of all weights in one array, by its own names; of plain SGD nothing."""
    found = {name: optax.tree_utils.tree_get(optimizer.state, name) for name in _MOMENTS}
    return {name: moment for name, moment in found.items() if moment is not None}


def _in_one(params: Any) -> jax.Array:
    """A tree's arrays in one, in the order of ``ravel_pytree``."""
    return jnp.array(np.concatenate([np.ravel(each) for each in jax.tree.leaves(params)]))


def _as_tree(moment: jax.Array, params: Any) -> Any:
    """What :func:`_in_one` joined, as a tree like the weights'.

    NumPy does it: over nodes rank 0 saves alone, and no process may give JAX work alone.
    """
    leaves, tree = jax.tree.flatten(params)
    ends = np.cumsum([each.size for each in leaves])
    parts = np.split(np.asarray(moment), ends[:-1])
    return jax.tree.unflatten(
        tree, [part.reshape(each.shape) for part, each in zip(parts, leaves, strict=True)]
    )


def _name(path: tuple[Any, ...], is_own: bool) -> str:
    """torchvision's name of a variable; in a custom network, its path."""
    *way, last = map(str, path)
    return ".".join([*way, last if is_own else _CANONICAL.get(last, last)])


def _arrays(state: Any, is_own: bool) -> dict[str, np.ndarray]:
    """A copy of a state's arrays in the canonical layout."""
    flat = nnx.to_flat_state(state)
    return {_name(path, is_own): weight_layout.first(np.array(each[...])) for path, each in flat}


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


def _cut(sharding: NamedSharding, array: Any) -> jax.Array:
    """An array that every process has whole, over devices of which some may be another's."""
    if jax_ranks.is_key(array):
        return jax_ranks.placed_key(array, partial(_cut, sharding))
    whole = np.asarray(array)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def _is_4d(name: str) -> bool:
    return name in ("images", "gradient")


def _batch(images: np.ndarray, dtype: Any) -> jax.Array:
    """(N, 3, H, W) as a channels-last array."""
    return jnp.asarray(weight_layout.pictures(images), dtype)
