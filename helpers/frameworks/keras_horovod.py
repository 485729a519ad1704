"""The framework-specific helper functions for Keras with Horovod: Keras's, for all ranks.

Horovod's ``DistributedOptimizer`` (of 2023) does not know Keras 3's optimisers, so the notebook's
step takes its gradients through Horovod's tape for TensorFlow. Each device has a process.
"""

from helpers.frameworks import horovod_ranks as ranks
from helpers.frameworks import keras as alone
from helpers.frameworks.keras import *

# isort: split
from helpers.frameworks.horovod_ranks import (
    list_devices,
    make_current,
    rank_gradients,
    slowest,
)


def versions() -> dict[str, str]:
    return alone.versions() | ranks.versions()
