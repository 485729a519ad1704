"""Keras: its DenseNet121 and Adam, ``compile`` and ``fit``.

Without XLA, which the notebook cannot have on several devices and which Keras would use on one.
"""

import os
from collections.abc import Callable

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

OPTIONS: dict[str, dict[str, object]] = {
    "without XLA": {},
    "mixed_bfloat16": {"policy": "mixed_bfloat16"},
}
SLOW: dict[str, dict[str, object]] = {"XLA, as it comes": {"xla": True}}


def make(
    pixels: int, batch: int, *, xla: bool = False, policy: str = "float32"
) -> Callable[[int], None]:
    keras.utils.set_random_seed(0)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    model = keras.applications.DenseNet121(
        weights=None, input_shape=(pixels, pixels, 3), classes=14, classifier_activation=None
    )
    keras.config.set_dtype_policy(before)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-4), loss=loss, jit_compile=xla)
    noise = tf.random.normal((batch, pixels, pixels, 3)), tf.zeros((batch, 14))
    data = tf.data.Dataset.from_tensors(noise).repeat()

    def take(steps: int) -> None:
        model.fit(data, steps_per_epoch=steps, verbose=0)

    return take
