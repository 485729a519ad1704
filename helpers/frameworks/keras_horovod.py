"""The framework-specific helper functions for Keras with Horovod: Keras's, for all ranks."""

from helpers.frameworks import horovod_ranks as ranks
from helpers.frameworks import keras as alone
from helpers.frameworks.keras import *

# isort: split
from helpers.frameworks.horovod_ranks import list_devices, make_current, rank_gradients, slowest


def versions() -> dict[str, str]:
    return alone.versions() | ranks.versions()
