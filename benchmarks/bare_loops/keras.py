"""Train with plain Keras: its DenseNet121 and Adam, ``compile`` and ``fit``.

Without XLA, which the notebook cannot have on several devices and which Keras would use on one.
"""

import os
from collections.abc import Callable

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf


def make(pixels: int, batch: int) -> Callable[[int], None]:
    keras.utils.set_random_seed(0)
    model = keras.applications.DenseNet121(
        weights=None, input_shape=(pixels, pixels, 3), classes=14, classifier_activation=None
    )
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(1e-4), loss=loss, jit_compile=False)
    noise = tf.random.normal((batch, pixels, pixels, 3)), tf.zeros((batch, 14))
    data = tf.data.Dataset.from_tensors(noise).repeat()

    def take(steps: int) -> None:
        model.fit(data, steps_per_epoch=steps, verbose=0)

    return take
