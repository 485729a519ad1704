"""The framework-specific helper functions for JAX.

Specific to JAX: one process drives all devices of its node, and those of all nodes form a mesh of
one axis, ``replica``; ``devices`` holds the node's, and how nodes are joined is in ``jax_ranks``. A
model is a module of Flax NNX, an optimiser is ``nnx.Optimizer``. Images and weights are
channels-last. JAX computes in float64 only inside ``jax.enable_x64``, where :func:`exact` and what
is given its model compute.

XLA compiles each step before it runs, in every run: kept programs would make a first step depend on
which runs there were before.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from helpers.frameworks import jax_ranks, library_versions, memory, precisions
from helpers.frameworks.interface import Seen, Watch
from helpers.frameworks.jax_checks import *
from helpers.frameworks.jax_ranks import AXIS
from helpers.frameworks.jax_rule import Probe
from helpers.frameworks.jax_state import *

NAME = "JAX"
KERNEL = "jax"

# What JAX cannot do, and why.
SKIPPED = {
    **precisions.ON_GPUS_ONLY,
    **precisions.LEFT_TO_PYTORCH,
    "the same bits from the same seed on GPUs": (
        "XLA picks its algorithms by their speed, which may be others in another run"
    ),
}

ON_CPUS = (
    "--xla_backend_optimization_level=1 --xla_cpu_collective_call_terminate_timeout_seconds=600"
)
"""XLA's flags for CPUs: it compiles sooner, with steps as fast (benchmarks/RESULTS.md), and where
other programs hold up a device, an all-reduce waits for longer than 40 s before it ends the
process. Flags of the user's own take their place."""


def versions() -> dict[str, str]:
    found = {name: metadata.version(name) for name in ("jax", "jaxlib", "flax", "optax", "grain")}
    return found | library_versions.nvidia()


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
            os.environ.setdefault("XLA_FLAGS", ON_CPUS)
            jax.config.update("jax_platforms", "cpu")
            # as XLA_FLAGS=--xla_force_host_platform_device_count does
            jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # JAX has started: what was made then is what there is
        if len(jax.local_devices(backend=kind)) < count:
            raise
    jax_ranks.HELD[:] = jax.local_devices(backend=kind)[:count]
    jax_ranks.all_devices(jax_ranks.HELD)  # connects the nodes
    return list(jax_ranks.HELD)


def configure(precision: str, kind: str) -> None:
    precisions.check(precision, kind, SKIPPED)
    # By default JAX rounds convolutions and matrix products on a GPU to TF32.
    rounded = "float32" if precision == "fp32" else "tensorfloat32"
    jax.config.update("jax_default_matmul_precision", rounded)
    if kind == "cpu":  # where XLA has no memory pool of its own
        memory.keep_freed()


def synchronize(devices: Sequence[Device]) -> None:
    jax.block_until_ready(jax.live_arrays())


def peak_bytes(devices: Sequence[Device]) -> int | None:
    # XLA's pool is most of a GPU from the start.
    found = [device.memory_stats() for device in devices]
    return max((each["peak_bytes_in_use"] for each in found if each), default=None)


def queued(device: Device) -> Callable[[], None] | None:
    """A GPU computes in order, so what is given to it now is done last.

    A CPU device does not. So something is computed of every number, such as a loss, that is still
    to come. (The next step may overwrite the number itself.)
    """
    if device.platform == "cpu":
        single = (each for each in jax.live_arrays() if each.ndim == 0 and not each.is_ready())
        pending = [each.addressable_data(0) for each in single if not jax_ranks.is_key(each)]
    else:
        pending = [jnp.zeros((), device=device)]
    return partial(jax.block_until_ready, [each + 1 for each in pending]) if pending else None


def watch(replica: Any) -> Watch:
    network, optimizer = replica.network, replica.optimizer
    probe = Probe(optimizer.tx, nnx.as_pure(nnx.state(network, optimizer.wrt)))
    types, call = set(), nnx.Conv.__call__
    before = int(optimizer.step[...])
    rates = probe.rates(before)

    def noting(layer: nnx.Conv, *given: Any, **options: Any) -> Any:
        output = call(layer, *given, **options)
        types.add(output.dtype.name)
        return output

    nnx.Conv.__call__ = noting  # called where a step is traced, never where it is run

    def updates() -> int:
        return int(optimizer.step[...]) - before

    def seen() -> Seen:
        nnx.Conv.__call__ = call
        name, found = probe.constants()
        return Seen(
            name,
            {what: values.tolist() for what, values in found.items()},
            updates(),
            "/".join(sorted(types)) or None,
            "compiled (jax.jit, XLA)",
            jax.config.jax_default_matmul_precision != "float32",
            weights=probe.weights,
        )

    def held() -> list[np.ndarray]:
        last = jax.tree.leaves(nnx.state(network, nnx.Param))[-1]
        shards = getattr(last, "addressable_shards", None)  # NumPy's arrays have none
        return [np.asarray(last)] if shards is None else [np.asarray(each.data) for each in shards]

    return Watch(partial(next, rates), updates, seen, held, live=False)


def free_memory(devices: Sequence[Device]) -> None:
    """XLA keeps its pool."""


def as_loaded(pixels: np.ndarray, targets: np.ndarray, numbers: np.ndarray) -> Any:
    """On the devices: each has its block."""
    mesh = Mesh(np.array(jax_ranks.all_devices(jax_ranks.HELD)), (AXIS,))
    split = NamedSharding(mesh, P(AXIS))
    return jax.make_array_from_process_local_data(split, (pixels, targets, numbers))


def set_epoch(loader: Any, epoch: int) -> None:
    loader.set_epoch(epoch)


def slowest(seconds: float, devices: Sequence[Device]) -> float:
    """Each node has one process."""
    return float(jax_ranks.gathered(np.array(seconds)).max())
