"""What the tests of TensorFlow and of Keras share, for both train under MirroredStrategy."""

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework.dataset_options_pb2 import Options
from tensorflow.python.ops import gen_dataset_ops


def tuned(patch: pytest.MonkeyPatch) -> list[bool]:
    """Whether tf.data tunes it: for each data set that is iterated from now on, our own or not.

    It reads the options that the runtime itself goes by.
    """
    found: list[bool] = []

    def watch(operation: str) -> None:
        begin = getattr(gen_dataset_ops, operation)

        def watched(dataset: tf.Tensor, *rest: Any, **options: Any) -> Any:
            said = tf.raw_ops.GetOptions(input_dataset=dataset).numpy()
            autotune = Options.FromString(said).autotune_options
            found.append(not autotune.HasField("enabled") or autotune.enabled)
            return begin(dataset, *rest, **options)

        patch.setattr(gen_dataset_ops, operation, watched)

    watch("make_iterator")
    watch("multi_device_iterator_init")
    return found
