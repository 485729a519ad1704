"""List the performance switches that were on in a training process, as its libraries report them.

The report lists them for each framework. docs/speed.md describes the gain of each switch.
"""

import os
import sys
from typing import Any

from threadpoolctl import threadpool_info

VARIABLES = ("MXNET_CPU_TEMP_COPY", "OMP_WAIT_POLICY", "TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS")
"""Environment variables that are switches themselves."""
KEPT, COMPILED_HERE = "programs kept from earlier runs", "programs compiled in each run"
"""Whether a first step of JAX includes compiling."""


def on(network: Any, on_gpu: bool) -> list[str]:
    """The performance settings of the imported framework, such as ``oneDNN`` and ``channels last``.

    Args:
        network: the notebook's, trained; it tells the layout of PyTorch's weights.
        on_gpu: whether it was trained on GPUs.
    """
    found: dict[str, Any] = {}
    if "torch" in sys.modules:
        import torch

        weights = [part for part in network.parameters() if part.ndim == 4]
        last = all(each.is_contiguous(memory_format=torch.channels_last) for each in weights)
        found["cuDNN's benchmark"] = on_gpu and torch.backends.cudnn.benchmark
        found["oneDNN"] = not on_gpu and torch.backends.mkldnn.enabled
        found["channels last"] = weights and last
    if "tensorflow" in sys.modules:
        import tensorflow as tf
        from tensorflow.python.util import _pywrap_util_port

        found["oneDNN"] = not on_gpu and _pywrap_util_port.IsMklEnabled()
        within = tf.config.threading.get_intra_op_parallelism_threads()
        at_once = tf.config.threading.get_inter_op_parallelism_threads()
        found |= {f"intra-op threads: {within}": within, f"inter-op threads: {at_once}": at_once}
    if "mxnet" in sys.modules:
        import mxnet as mx

        found["oneDNN"] = not on_gpu and mx.runtime.Features().is_enabled("MKLDNN")
    if "chainer" in sys.modules and not on_gpu:  # its convolutions are NumPy's matrix products
        pools = (pool for pool in threadpool_info() if pool["user_api"] == "blas")
        found |= {f"NumPy with {pool['internal_api']}": True for pool in pools}
    if "jax" in sys.modules:
        import jax

        # A cache of the user's own (JAX_COMPILATION_CACHE_DIR) serves training too.
        found[KEPT if jax.config.jax_compilation_cache_dir else COMPILED_HERE] = True
    found |= {f"{name}={os.environ[name]}": True for name in VARIABLES if os.environ.get(name)}
    return [name for name, is_on in found.items() if is_on]
