"""Computations in JAX for the fairness check and the self-test.

XLA compiles it without optimising (``ONCE``). Float64 is computed on the CPU, unless over several
GPUs: for a GPU, XLA would time the algorithms of each convolution first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from helpers.frameworks import jax_ranks, weight_layout
from helpers.frameworks.jax_ranks import AXIS
from helpers.frameworks.jax_state import OF_WEIGHTS, arrays_of, load_weights
from helpers.networks import custom
from helpers.networks import jax as networks
from helpers.recipe import RECIPES

Device: TypeAlias = jax.Device
Model: TypeAlias = nnx.Module

ONCE: dict[str, bool | int] = {"xla_backend_optimization_level": 0}
if jax.__version_info__ < (0, 11):  # later ones refuse the option, on GPUs too
    ONCE["xla_cpu_use_fusion_emitters"] = False
"""XLA's options for what the fairness check computes, a few times at most.

Its emitters of fused loops take half of the time of compiling DenseNet121's gradients. Training has
them: without, its steps take 4 % longer (benchmarks/RESULTS.md).
"""


def exact(
    build_model: Callable[[Mapping[str, np.ndarray]], Model], weights: Mapping[str, np.ndarray]
) -> Model:
    with jax.enable_x64(True), jax.default_device(_cpu()):
        return build_model({name: array.astype(np.float64) for name, array in weights.items()})


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    model = networks.build("shallow", weights, RECIPES["chexnet"])
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    """Uses the program that computes gradients, so that it is compiled once for both."""
    model.eval()
    outputs = getattr(model, model.head).out_features
    targets = np.zeros((len(images), outputs), np.float32)
    on_gpu = jax_ranks.HELD[0].platform != "cpu"
    alone = on_gpu and _dtype(model) == np.float64  # then it is the CPU
    return _of_all(model, images, targets, jax_ranks.HELD[:1] if alone else jax_ranks.HELD)[2]


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """In full float32 whatever the run's precision: TF32's rounding would hide a wrong epsilon."""
    model.train()
    with _as_weights(model) as dtype, jax.default_matmul_precision("float32"):
        found, after = _forward(*nnx.split(model), _batch(images, dtype))
        return np.array(found), arrays_of(after.filter(OF_WEIGHTS), custom.is_own(model))


def gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """Summed over a mesh of the devices."""
    model.eval()
    return _of_all(model, images, targets, devices)[:2]


def rank_gradients(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray]]:
    """Summed over a mesh of the devices of all ranks."""
    return gradients(model, images, targets, jax_ranks.all_devices(devices))


@contextmanager
def seen_by(model: Model) -> Iterator[list[np.ndarray]]:
    """The first batch is computed operation by operation, where the first convolution sees it."""
    seen: list[np.ndarray] = []
    first = next(layer for _, layer in nnx.iter_modules(model) if isinstance(layer, nnx.Conv))
    before = first.promote_dtype
    with ExitStack() as stack:
        stack.enter_context(jax.disable_jit())

        def noting(arrays: tuple[Any, ...], **given: Any) -> Any:
            if not seen and not isinstance(arrays[0], jax.core.Tracer):
                images = jax_ranks.own_part(arrays[0]).astype(np.float32)
                seen.append(images.transpose(0, 3, 1, 2))
                stack.close()
            return before(arrays, **given)

        first.promote_dtype = noting
        try:
            yield seen
        finally:
            first.promote_dtype = before


@contextmanager
def _as_weights(model: Model) -> Iterator[Any]:
    """The dtype of a model's weights; inside JAX computes in it, and not in 32 bits for 64."""
    dtype = _dtype(model)
    double = dtype == np.float64
    with jax.enable_x64(double), jax.default_device(_cpu() if double else None):
        yield dtype


def _dtype(model: Model) -> Any:
    return jax.tree.leaves(nnx.state(model, nnx.Param))[0].dtype


def _cpu() -> Device:
    first = jax_ranks.HELD[0]
    return first if first.platform == "cpu" else jax.local_devices(backend="cpu")[0]


def _of_all(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray], np.ndarray]:
    """Mean loss, its gradients, and this process's logits."""
    order, counts = _equal_shares(len(images), len(devices))
    weights = counts / targets.size
    with _as_weights(model) as dtype:
        if dtype == np.float64 and len(devices) == 1:
            devices = [_cpu()]
        mesh = Mesh(np.array(devices), (AXIS,))
        shared, everywhere = NamedSharding(mesh, P(AXIS)), NamedSharding(mesh, P())
        graph, params, rest = nnx.split(model, nnx.Param, ...)
        held = jax.tree.map(partial(_cut, everywhere), (params, rest))
        batch = _batch(images[order], dtype), targets[order].astype(dtype), weights.astype(dtype)
        split = jax.tree.map(partial(_cut, shared), batch)
        (loss, found), output = _gradients(graph, mesh, *held, *split)
        own = jax_ranks.own_part(output)
        logits = own[counts] if len(own) == len(order) else own
        return float(loss), arrays_of(found, custom.is_own(model)), logits


def _equal_shares(images: int, devices: int) -> tuple[np.ndarray, np.ndarray]:
    """Which image each device gets at each place of its share, and whether it counts there.

    ``shard_map`` requires equal shares: a shorter one is filled up with images that do not count.
    """
    longest = -(-images // devices)
    parts = np.array_split(np.arange(images), devices)
    order = np.concatenate([np.resize(part, longest) for part in parts])
    return order, np.concatenate([np.arange(longest) < len(part) for part in parts])


def _cut(sharding: NamedSharding, array: Any) -> jax.Array:
    """An array that every process has whole, over devices of which some may be another's."""
    if jax_ranks.is_key(array):
        data, drawn_by = jax.random.key_data(array), jax.random.key_impl(array)
        return jax.random.wrap_key_data(_cut(sharding, data), impl=drawn_by)
    whole = np.asarray(array)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


@partial(jax.jit, static_argnums=0, compiler_options=ONCE)
def _forward(graph: Any, state: Any, images: jax.Array) -> tuple[jax.Array, Any]:
    model = nnx.merge(graph, state, copy=True)
    return model(images), nnx.state(model)


@partial(jax.jit, static_argnums=(0, 1), compiler_options=ONCE)
def _gradients(graph: Any, mesh: Mesh, *given: Any) -> tuple[tuple[jax.Array, Any], jax.Array]:
    """The loss and the gradients, summed over the mesh's devices; and each one's logits."""

    def replica(params: Any, rest: Any, images: Any, targets: Any, weights: Any) -> Any:
        def loss_of(params: Any) -> tuple[jax.Array, jax.Array]:
            output = nnx.merge(graph, params, rest)(images)
            each = optax.sigmoid_binary_cross_entropy(output, targets).sum(axis=1)
            return (each * weights).sum(), output

        (loss, output), found = jax.value_and_grad(loss_of, has_aux=True)(params)
        return jax.lax.psum((loss, found), AXIS), output

    specs, split = (P(), P(), P(AXIS), P(AXIS), P(AXIS)), (P(), P(AXIS))
    # Unchecked, a gradient is each device's own, until it is summed above.
    mapped = jax.shard_map(replica, mesh=mesh, in_specs=specs, out_specs=split, check_vma=False)
    found: tuple[tuple[jax.Array, Any], jax.Array] = mapped(*given)
    return found


def _batch(images: np.ndarray, dtype: Any) -> jax.Array:
    """(N, 3, H, W) as a channels-last array."""
    return jnp.asarray(weight_layout.pictures(images), dtype)
