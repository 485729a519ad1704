"""The framework-specific helper functions for JAX.

Peculiar to JAX: one process drives all devices of its node, and those of all nodes form a mesh of
one axis, ``replica``; ``devices`` holds the node's, and how nodes are joined is in ``jax_ranks``. A
model is a module of Flax NNX, called as ``model(images)`` after
``model.train()`` or ``model.eval()``. Images and weights are channels-last: convolutions are HWIO
here, OIHW in the canonical layout, and the classifier is transposed. JAX computes in float64 only
inside ``jax.enable_x64``, where :func:`exact` and what is given its model compute. The same seed
gives the same bits on CPUs.

XLA compiles each step before it runs. What the fairness check computes a few times is not optimised
(``_ONCE``). What XLA has compiled is kept in ``data/compiled``, a folder for each kind of
processor, and the next run takes it from there.
"""

import hashlib
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from helpers import paths
from helpers.errors import UnsupportedError
from helpers.frameworks import capabilities, cpu_cores, jax_ranks, memory, precisions
from helpers.frameworks.inspection import Seen, Watch
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
"""XLA's flag for CPUs, to compile sooner; steps were as fast with it (docs/environments.md). Flags
of the user's own take its place."""

_ONCE = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
"""XLA's options for what the fairness check computes, a few times at most.

Its emitters of fused loops for CPUs take half of the time of compiling DenseNet121's gradients
(15.4 s of processor time with them, 7.7 without, one run each), which are computed as fast without.
Training has them: without, its steps take 4 % longer (docs/environments.md).
"""
_CANONICAL = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}
_MOMENTS = {"mu": "first", "nu": "second", "trace": "first"}
"""Optax's names of what it keeps for each weight: of Adam, and of momentum."""
_OF_WEIGHTS = nnx.Not(nnx.RngState)


def versions() -> dict[str, str]:
    """Versions of the framework and of the libraries its speed depends on."""
    found = {name: metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax", "grain")}
    libraries = {"cuda": "cuda-runtime", "cudnn": "cudnn", "nccl": "nccl"}
    for name, library in libraries.items():
        try:
            found[name] = metadata.version(f"nvidia-{library}-cu12")
        except metadata.PackageNotFoundError:
            continue  # the CPU form
    return found


def list_devices(kind: str, count: int, gpus: int | None = None) -> list[Device]:
    """The framework's handles for the devices of a run.

    Call it before JAX computes anything: the devices cannot change afterwards (RuntimeError).

    Args:
        kind: ``gpu`` or ``cpu``.
        count: number of replicas.
        gpus: number of GPUs that the replicas share; None: one GPU per replica.

    Raises:
        UserError: the devices cannot be had, or lack memory.
        UnsupportedError: the framework's replicas cannot share a GPU.
    """
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
    """Set the process up for a precision, and for speed on the given kind of device.

    The notebook says what is cast.

    Args:
        precision: ``fp32``, ``tf32``, ``bf16`` or ``fp16``.
        kind: ``gpu`` or ``cpu``.

    Raises:
        UnsupportedError: the framework cannot compute in this precision there.
    """
    precisions.check(precision, kind, SKIPPED)
    # By default JAX rounds convolutions and matrix products on a GPU to TF32.
    rounded = "float32" if precision == "fp32" else "tensorfloat32"
    jax.config.update("jax_default_matmul_precision", rounded)
    jax.config.update("jax_compilation_cache_dir", str(_compiled()))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    if kind == "cpu":  # where XLA has no memory pool of its own
        memory.keep_freed()


def synchronize(devices: Sequence[Device]) -> None:
    """Wait until the devices have finished all queued work; for timing only."""
    # Each works in order, so this comes last.
    jax.block_until_ready([jnp.zeros((), device=device) + 1 for device in devices])


def completion(result: Any) -> Callable[[], None] | None:
    """A callable that waits until ``result`` has been computed; None if it already has.

    Args:
        result: what a step returned.

    Returns:
        A callable for another thread, which does not wait for work queued later.
    """
    if all(array.is_ready() for array in jax.tree.leaves(result)):
        return None
    return partial(jax.block_until_ready, result)


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    """Copy canonical weights into ``model``, on every replica.

    Their dtype is the model's from then on.

    Args:
        model: the notebook's model.
        weights: float arrays by torchvision's names; convolutions are (out, in, height, width).

    Raises:
        ValueError: an array is missing, or there is one that the model has not.
    """
    doubles = any(array.dtype == np.float64 for array in weights.values())
    with jax.enable_x64(doubles):
        nnx.update(model, _filled(nnx.state(model, _OF_WEIGHTS), weights, custom.is_own(model)))


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    """The model's weights in the canonical layout; the inverse of :func:`load_weights`."""
    return _arrays(nnx.state(model, _OF_WEIGHTS), custom.is_own(model))


def load_optimizer(
    model: Model, optimizer: Any, state: Mapping[str, np.ndarray], scaler: Any = None
) -> None:
    """Restore the optimiser's state as :func:`dump_optimizer` returned it.

    The factor of fp16's loss is the optimiser's own, so there is no ``scaler``.

    Args:
        model: the model whose weights the optimiser updates.
        optimizer: the optimiser to restore.
        state: arrays by name; if empty, nothing changes.
        scaler: what multiplies fp16's loss, if that is not part of the optimiser.
    """
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
    """The optimiser's state as arrays in the canonical layout.

    The factor of fp16's loss stays 1 in other precisions.

    Args:
        model: the model whose weights the optimiser updates.
        optimizer: the optimiser to save.
        scaler: what multiplies fp16's loss, if that is not part of the optimiser.

    Returns:
        Adam's two moments of each weight (``first/...``, ``second/...``), or momentum's velocity
        (``first/...``) as PyTorch has it, without the rate; the number of steps (``step``) and, if
        something scales fp16's loss, its factor (``scale``).
    """
    params = nnx.state(model, nnx.Param)
    found = {
        f"{_MOMENTS[theirs]}/{name}": array
        for theirs, moment in _moments(optimizer).items()
        for name, array in _arrays(_as_tree(moment, params), custom.is_own(model)).items()
    }
    step = optax.tree_utils.tree_get(optimizer.state, "count", 0)
    return found | {"step": np.array(int(step)), "scale": np.array(optimizer.scale)}


def learning_rate(optimizer: Any) -> float:
    """The learning rate of the optimiser's last step."""
    return float(optimizer.rate)


def watch(replica: Any) -> Watch:
    """Look on while a replica trains; it must not have taken a step yet.

    Args:
        replica: the notebook's.

    Returns:
        What the framework's own objects say of it, while it trains and afterwards.
    """
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
    """The notebook's model in float64.

    Args:
        build_model: the notebook's function, which makes a model of canonical weights.
        weights: arrays by torchvision's names.
    """
    with jax.enable_x64(True):
        return build_model({name: array.astype(np.float64) for name, array in weights.items()})


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    """A network of one convolution, BatchNorm and classifier, to test a training loop on.

    Args:
        weights: arrays by the names in ``shapes.SHALLOW``; their dtype is the network's.
        devices: the devices that hold a replica.
    """
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
    """The model's logits in evaluation mode.

    Args:
        model: the notebook's model.
        images: normalised floats (N, 3, H, W).

    Returns:
        Logits before the sigmoid (N, outputs).
    """
    model.eval()
    with _as_weights(model) as dtype:
        found = _forward(*nnx.split(model), _batch(images, dtype))[0]
    return np.array(found)


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A forward pass in training mode, on one device.

    In full float32 whatever the run's precision, for the rounding of TF32 would hide a wrong
    epsilon.

    Args:
        model: the notebook's model; it is not changed.
        images: normalised floats (N, 3, H, W).

    Returns:
        Logits (N, outputs), and the weights after the pass, in which only BatchNorm's running
        statistics differ.
    """
    model.train()
    with _as_weights(model) as dtype, jax.default_matmul_precision("float32"):
        found, after = _forward(*nnx.split(model), _batch(images, dtype))
        return np.array(found), _arrays(after.filter(_OF_WEIGHTS), custom.is_own(model))


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """Loss and gradients of the mean loss, as the optimiser would get them.

    Every device gets as many images, as ``shard_map`` wants it. Where its share is smaller, black
    ones without a weight fill it up.

    Args:
        model: the notebook's model; BatchNorm uses its running statistics, so that the split over
            devices cannot change the result.
        images: normalised floats (N, 3, H, W).
        targets: labels (N, outputs), 0 or 1.
        devices: the devices that share the batch.

    Returns:
        The mean loss, and the gradients by torchvision's names.
    """
    model.eval()
    count = len(devices)
    largest = -(-len(images) // count)
    parts = np.array_split(np.arange(len(images)), count)
    order = np.concatenate([np.resize(part, largest) for part in parts])
    weights = np.concatenate([np.arange(largest) < len(part) for part in parts]) / targets.size
    mesh = Mesh(np.array(devices), (AXIS,))
    shared, everywhere = NamedSharding(mesh, P(AXIS)), NamedSharding(mesh, P())
    with _as_weights(model) as dtype:
        graph, params, rest = nnx.split(model, nnx.Param, ...)
        held = jax.tree.map(partial(_cut, everywhere), (params, rest))
        batch = _batch(images[order], dtype), targets[order].astype(dtype), weights.astype(dtype)
        split = jax.tree.map(partial(_cut, shared), batch)
        loss, found = _gradients(graph, mesh, *held, *split)
        return float(loss), _arrays(found, custom.is_own(model))


def through_layer(
    layer: str, arrays: Mapping[str, np.ndarray], device: Device
) -> dict[str, np.ndarray]:
    """One layer, forward and backward, on one device; for the self-test.

    Args:
        layer: its name in ``helpers.runner.self_test.expected``, which says what it computes.
        arrays: the layer's inputs by name; ``gradient`` flows back from its output.
        device: a handle from :func:`list_devices`.

    Returns:
        ``output``, and the gradient of each array except ``gradient``, by its name.
    """
    with jax.default_device(device):
        given = {name: _batch(array, jnp.float32) for name, array in arrays.items() if _is_4d(name)}
        given |= {n: jnp.asarray(_channels_last(a)) for n, a in arrays.items() if not _is_4d(n)}
        gradient = given.pop("gradient")
        output, back = jax.vjp(_LAYERS[layer], given)
        (found,) = back(gradient)
    pictures = {"output": output, "images": found.pop("images")}
    return {
        **{name: np.array(array).transpose(0, 3, 1, 2) for name, array in pictures.items()},
        **{name: _channels_first(np.array(array)) for name, array in found.items()},
    }


def matrix_product(size: int, dtype: str, device: Device) -> Callable[[], None]:
    """A callable that multiplies two square matrices on one device and waits for the result.

    Args:
        size: rows of a matrix, and columns.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: a handle from :func:`list_devices`.

    Returns:
        The callable. The matrices are already on the device.
    """
    with jax.default_device(device):
        row = jnp.linspace(-1, 1, size)
        matrix = jnp.outer(row, row).astype(dtype)

    def multiply() -> None:
        jax.block_until_ready(matrix @ matrix)

    return multiply


def all_reduced(shares: Sequence[np.ndarray], devices: Sequence[Device]) -> list[np.ndarray]:
    """What each device has after an all-reduce, done as the notebook does it.

    By ``psum`` over a mesh, with NCCL between GPUs.

    Args:
        shares: one float32 array (N,) per device.
        devices: handles from :func:`list_devices`.

    Returns:
        One float32 array (N,) per device: the sum of the shares.
    """
    mesh = Mesh(np.array(jax_ranks.all_devices(devices)), (AXIS,))
    spread = jax_ranks.shard(np.stack(shares), NamedSharding(mesh, P(AXIS)))
    reduce = jax.shard_map(
        lambda own: jax.lax.psum(own, AXIS),
        mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS), check_vma=False,
    )  # fmt: skip
    return list(jax_ranks.own_part(jax.jit(reduce)(spread)))


class DeviceLosses:
    """Sums losses where they are computed; the host reads them once per epoch."""

    def __init__(self, devices: Sequence[Device]) -> None:
        with jax.enable_x64(True):
            self._sums = [jnp.zeros(2, jnp.float64, device=device) for device in devices]

    def add(self, position: int, loss: Any, images: int) -> None:
        """Add the mean ``loss`` over ``images`` images, a scalar on device number ``position``."""
        with jax.enable_x64(True):
            self._sums[position] = _added(self._sums[position], loss, images)

    def mean(self) -> float:
        """Mean loss per image over all devices; waits for them."""
        own = np.sum([np.asarray(part) for part in self._sums], axis=0)
        loss, images = jax_ranks.gathered(own).sum(axis=0)
        return float(loss / images)


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """The longest time that any replica's process measured.

    Here there is one process for each node.

    Args:
        seconds: what this process measured.
        devices: handles from :func:`list_devices`.

    Returns:
        Seconds.
    """
    return float(jax_ranks.gathered(np.array(seconds)).max())


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` (or the replica's error behind it) says that memory ran out."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, jax.errors.JaxRuntimeError) and any(
        words in str(error) for words in ("RESOURCE_EXHAUSTED", *memory.RAN_OUT)
    )


def skip(capability: str) -> str | None:
    """Why the framework cannot do something; None if it can.

    Args:
        capability: its name, as in ``SKIPPED``.
    """
    return SKIPPED.get(capability)


def _compiled() -> Path:
    """Where XLA keeps what it has compiled; a CPU may not know another one's instructions."""
    kind = hashlib.sha256(cpu_cores.of_cpu("flags").encode()).hexdigest()[:8]
    return paths.DATA / "compiled" / f"{platform.machine()}-{kind}"


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
    return {_name(path, is_own): _channels_first(np.array(each[...])) for path, each in flat}


def _filled(state: Any, arrays: Mapping[str, np.ndarray], is_own: bool) -> Any:
    """A state with these canonical arrays in it; every one of them, and no other."""
    flat = dict(nnx.to_flat_state(state))
    names = {_name(path, is_own): variable for path, variable in flat.items()}
    wrong = sorted(names.keys() ^ arrays.keys())
    wrong = wrong or [
        name
        for name, variable in names.items()
        if tuple(variable.shape) != _channels_last(arrays[name]).shape
    ]
    if wrong:
        raise ValueError(f"weights do not fit the model: {wrong[0]} (and {len(wrong) - 1} more)")
    return nnx.from_flat_state(
        {
            path: variable.replace(jnp.array(_channels_last(arrays[_name(path, is_own)])))
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
    return jnp.asarray(images.transpose(0, 2, 3, 1), dtype)


def _channels_last(array: np.ndarray) -> np.ndarray:
    """OIHW to HWIO, and the classifier's (out, in) to (in, out)."""
    return array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T


def _channels_first(array: np.ndarray) -> np.ndarray:
    """The inverse of :func:`_channels_last`, as a copy of its own."""
    return np.ascontiguousarray(array.transpose(3, 2, 0, 1) if array.ndim == 4 else array.T)
