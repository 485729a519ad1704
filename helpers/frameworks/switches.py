"""List the performance switches that were on in a training process, as its libraries report them.

The report lists them for each framework. docs/speed.md describes the gain of each switch.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any

from threadpoolctl import threadpool_info


def on(network: Any, on_gpu: bool) -> list[str]:
    """Such as ``oneDNN`` and ``channels last``, of the framework that is imported here.

    Args:
        network: the notebook's, trained; it tells the layout of PyTorch's weights.
        on_gpu: whether it was trained on GPUs.
    """
    found = [
        said
        for switches in _SAID
        if switches.__name__.removeprefix("_") in sys.modules
        for said in switches(network, on_gpu)
    ]
    return found + [f"{name}={os.environ[name]}" for name in VARIABLES if os.environ.get(name)]


VARIABLES = ("MXNET_CPU_TEMP_COPY", "OMP_WAIT_POLICY", "TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS")
"""Environment variables that are switches themselves."""
KEPT, COMPILED_HERE = "programs kept from earlier runs", "programs compiled in each run"
"""Whether a first step of JAX includes compiling."""


def _torch(network: Any, on_gpu: bool) -> Iterator[str]:
    import torch

    if on_gpu and torch.backends.cudnn.benchmark:
        yield "cuDNN's benchmark"
    if not on_gpu and torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled:
        yield "oneDNN"
    weights = [part for part in network.parameters() if part.ndim == 4]
    if weights and all(one.is_contiguous(memory_format=torch.channels_last) for one in weights):
        yield "channels last"


def _tensorflow(network: Any, on_gpu: bool) -> Iterator[str]:
    import tensorflow as tf
    from tensorflow.python.util import _pywrap_util_port

    if not on_gpu and _pywrap_util_port.IsMklEnabled():
        yield "oneDNN"
    if within := tf.config.threading.get_intra_op_parallelism_threads():
        yield f"intra-op threads: {within}"
    if at_once := tf.config.threading.get_inter_op_parallelism_threads():
        yield f"inter-op threads: {at_once}"


def _mxnet(network: Any, on_gpu: bool) -> Iterator[str]:
    import mxnet as mx

    if not on_gpu and mx.runtime.Features().is_enabled("MKLDNN"):
        yield "oneDNN"


def _chainer(network: Any, on_gpu: bool) -> Iterator[str]:
    """On a CPU its convolutions are NumPy's matrix products."""
    if not on_gpu:
        pools = (pool for pool in threadpool_info() if pool["user_api"] == "blas")
        yield from sorted({f"NumPy with {pool['internal_api']}" for pool in pools})


def _jax(network: Any, on_gpu: bool) -> Iterator[str]:
    """A cache of the user's own (``JAX_COMPILATION_CACHE_DIR``) serves training too."""
    import jax

    yield KEPT if jax.config.jax_compilation_cache_dir else COMPILED_HERE


_SAID = (_torch, _tensorflow, _mxnet, _chainer, _jax)
"""Each has the name of its library's module, behind ``_``."""
