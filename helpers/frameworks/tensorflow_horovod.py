"""The framework-specific helper functions for TensorFlow with Horovod, over all ranks."""

from helpers.frameworks import horovod_ranks as ranks
from helpers.frameworks import tensorflow as alone
from helpers.frameworks.tensorflow import *

# isort: split
from helpers.frameworks.horovod_ranks import list_devices, make_current, rank_gradients, slowest


def versions() -> dict[str, str]:
    return alone.versions() | ranks.versions()
