"""The framework-specific helper functions for JAX; models are modules of Flax NNX.

JAX computes in float64 only inside ``jax.enable_x64``, and here on the CPU, unless over several
GPUs: for a GPU, XLA would time the algorithms of each convolution first.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import metadata
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from helpers.frameworks import jax_ranks, libraries, weight_layout
from helpers.frameworks.interface import BuildModel, Seen, Watch
from helpers.frameworks.jax_ranks import AXIS
from helpers.frameworks.jax_rule import ONCE, constants, rates
from helpers.networks import custom
from helpers.networks import jax as networks
from helpers.recipe import RECIPES

Device: TypeAlias = jax.Device
Model: TypeAlias = nnx.Module

SKIPPED = libraries.LEFT_TO_PYTORCH

ON_CPUS = (
    "--xla_backend_optimization_level=1 --xla_cpu_collective_call_terminate_timeout_seconds=600"
)
"""XLA's flags for CPUs, unless the user has others: it compiles sooner, with steps as fast
(benchmarks/RESULTS.md), and an all-reduce waits longer than 40 s for a device that is held up."""


def versions() -> dict[str, str]:
    found = {name: metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax", "grain")}
    return found | libraries.nvidia()


def list_devices(kind: str, count: int) -> list[Device]:
    """Call it before JAX computes anything: the devices cannot change afterwards (RuntimeError)."""
    jax_ranks.join()
    try:
        if kind == "gpu":
            # By default JAX's pool is three quarters of a GPU, the others' all but what CUDA needs.
            os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.92")
            # of other GPUs JAX would take the memory
            jax.config.update("jax_cuda_visible_devices", ",".join(map(str, range(count))))
        else:
            cores = len(os.sched_getaffinity(0))
            alone = " --xla_cpu_multi_thread_eigen=false" if cores <= count > 1 else ""
            os.environ.setdefault("XLA_FLAGS", ON_CPUS + alone)
            # By default one for each core: a launch that waits could take the last from a device.
            os.environ.setdefault("PJRT_NPROC", str(max(cores, 2 * count) if count > 1 else cores))
            jax.config.update("jax_platforms", "cpu")
            jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # JAX has started: what was made then is what there is
        if len(jax.local_devices(backend=kind)) < count:
            raise
    jax_ranks.HELD[:] = jax.local_devices(backend=kind)[:count]
    jax_ranks.all_devices(jax_ranks.HELD)  # connects the nodes
    return list(jax_ranks.HELD)


def configure(precision: str, kind: str) -> None:
    libraries.check_precision(precision, kind, SKIPPED)
    # By default JAX rounds convolutions and matrix products on a GPU to TF32.
    rounded = "float32" if precision == "fp32" else "tensorfloat32"
    jax.config.update("jax_default_matmul_precision", rounded)
    if kind == "cpu":  # where XLA has no memory pool of its own
        libraries.keep_freed()


def synchronize(devices: Sequence[Device]) -> None:
    jax.block_until_ready(jax.live_arrays())


def peak_bytes(devices: Sequence[Device]) -> int | None:
    # XLA's pool is most of a GPU from the start.
    found = [device.memory_stats() for device in devices]
    return max((each["peak_bytes_in_use"] for each in found if each), default=None)


def queued(device: Device) -> Callable[[], None] | None:
    """A GPU computes in order; on CPUs, something is computed of every number still to come."""
    if device.platform == "cpu":
        single = (each for each in jax.live_arrays() if each.ndim == 0 and not each.is_ready())
        pending = [each.addressable_data(0) for each in single if not jax_ranks.is_key(each)]
    else:
        pending = [jnp.zeros((), device=device)]
    # Not the number itself, which the next step may overwrite.
    return partial(jax.block_until_ready, [each + 1 for each in pending]) if pending else None


def watch(replica: Any) -> Watch:
    network, optimizer = replica.network, replica.optimizer
    weights = nnx.as_pure(nnx.state(network, optimizer.wrt))
    numbers = sum(each.size for each in jax.tree.leaves(weights))
    like = jax.tree.map(lambda each: 0.0, weights)
    types, call = set(), nnx.Conv.__call__

    def noting(layer: nnx.Conv, *given: Any, **options: Any) -> Any:
        output = call(layer, *given, **options)
        types.add(output.dtype.name)
        return output

    nnx.Conv.__call__ = noting  # called where a step is traced, never where it is run

    def seen() -> Seen:
        nnx.Conv.__call__ = call
        name, found = constants(optimizer.tx, like)
        return Seen(
            name,
            {what: values.tolist() for what, values in found.items()},
            "/".join(sorted(types)) or None,
            "compiled (jax.jit, XLA)",
            jax.config.jax_default_matmul_precision != "float32",
            weights=numbers,
        )

    def held() -> list[np.ndarray]:
        last = jax.tree.leaves(nnx.state(network, nnx.Param))[-1]
        shards = getattr(last, "addressable_shards", None)  # NumPy's arrays have none
        return [np.asarray(last)] if shards is None else [np.asarray(each.data) for each in shards]

    return Watch(
        partial(next, rates(optimizer.tx, like, int(optimizer.step[...]))),
        lambda: int(optimizer.step[...]),
        seen,
        held,
        live=False,
    )


def as_loaded(pixels: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> Any:
    """On the devices: each has its block."""
    mesh = Mesh(np.array(jax_ranks.all_devices(jax_ranks.HELD)), (AXIS,))
    split = NamedSharding(mesh, P(AXIS))
    return jax.make_array_from_process_local_data(split, (pixels, targets, numbers))


def set_epoch(loader: Any, epoch: int) -> None:
    loader.set_epoch(epoch)


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """Each node has one process."""
    with jax.enable_x64(True):
        return float(multihost_utils.process_allgather(np.array(seconds)).max())


OF_WEIGHTS = nnx.Not(nnx.RngState)
_CANONICAL = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}


def load_weights(model: Model, weights: Mapping[str, np.ndarray]) -> None:
    """Their dtype becomes the model's."""
    with jax.enable_x64(any(array.dtype == np.float64 for array in weights.values())):
        nnx.update(model, state_of(model, weights))


def dump_weights(model: Model) -> dict[str, np.ndarray]:
    return _arrays_of(nnx.state(model, OF_WEIGHTS), custom.is_own(model))


def load_optimizer(replica: Any, state: Mapping[str, np.ndarray], step: int) -> None:
    """Optax's schedules count the steps themselves."""
    held = nnx.to_flat_state(nnx.state(replica.optimizer))
    loaded = {path: each.replace(jnp.array(state["/".join(map(str, path))])) for path, each in held}
    nnx.update(replica.optimizer, nnx.from_flat_state(loaded))


def dump_optimizer(replica: Any) -> dict[str, np.ndarray]:
    held = nnx.to_flat_state(nnx.state(replica.optimizer))
    return {"/".join(map(str, path)): np.array(each[...]) for path, each in held}


def state_of(model: Model, weights: Mapping[str, np.ndarray]) -> Any:
    """A state for ``nnx.update``; the networks are built with the recipe's epsilon and momentum."""
    flat, is_own = dict(nnx.to_flat_state(nnx.state(model, OF_WEIGHTS))), custom.is_own(model)
    names = {path: _name(path, is_own) for path in flat}
    weight_layout.check({names[path]: each for path, each in flat.items()}, weights)
    return nnx.from_flat_state(
        {
            path: each.replace(jnp.array(weight_layout.last(weights[names[path]])))
            for path, each in flat.items()
        }
    )


def _arrays_of(state: Any, is_own: bool) -> dict[str, np.ndarray]:
    flat = nnx.to_flat_state(state)
    return {_name(path, is_own): weight_layout.first(np.array(each[...])) for path, each in flat}


def _name(path: tuple[Any, ...], is_own: bool) -> str:
    """torchvision's name of a variable; in a custom network, its path."""
    *way, last = map(str, path)
    return ".".join([*way, last if is_own else _CANONICAL.get(last, last)])


def exact(build_model: BuildModel, weights: Mapping[str, np.ndarray]) -> Model:
    with jax.enable_x64(True), jax.default_device(_cpu()):
        return build_model({name: array.astype(np.float64) for name, array in weights.items()})


def shallow(weights: Mapping[str, np.ndarray], devices: Sequence[Device]) -> Model:
    model = networks.build("shallow", weights, RECIPES["chexnet"])
    load_weights(model, weights)
    return model


def logits(model: Model, images: np.ndarray) -> np.ndarray:
    """Uses the program that computes gradients, so that it is compiled once for both."""
    model.eval()
    outputs = getattr(model, model.names[-1]).out_features
    targets = np.zeros((len(images), outputs), np.float32)
    return _of_all(model, images, targets, jax_ranks.HELD)[2]


def train_forward(model: Model, images: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """In full float32 whatever the run's precision: TF32's rounding would hide a wrong epsilon."""
    model.train()
    with _as_weights(model) as dtype, jax.default_matmul_precision("float32"):
        found, after = _forward(*nnx.split(model), _batch(images, dtype))
        return np.array(found), _arrays_of(after.filter(OF_WEIGHTS), custom.is_own(model))


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
    dtype = jax.tree.leaves(nnx.state(model, nnx.Param))[0].dtype
    double = dtype == np.float64
    with jax.enable_x64(double), jax.default_device(_cpu() if double else None):
        yield dtype


def _cpu() -> Device:
    first = jax_ranks.HELD[0]
    return first if first.platform == "cpu" else jax.local_devices(backend="cpu")[0]


def _of_all(
    model: Model, images: np.ndarray, targets: np.ndarray, devices: Sequence[Device]
) -> tuple[float, dict[str, np.ndarray], np.ndarray]:
    """Mean loss, its gradients, and this process's logits."""
    # shard_map requires equal shares, which are filled up with images that do not count.
    order = np.arange(-(-len(images) // len(devices)) * len(devices)) % len(images)
    counts = np.arange(len(order)) < len(images)
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
        return float(loss), _arrays_of(found, custom.is_own(model)), logits


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
    return jnp.asarray(weight_layout.pictures(images), dtype)
