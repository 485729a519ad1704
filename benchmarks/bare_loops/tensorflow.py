"""Train with plain TensorFlow: Keras's DenseNet121 and Adam in a step under ``tf.function``."""

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
    optimizer = keras.optimizers.Adam(1e-4)
    optimizer.build(model.trainable_variables)
    images, targets = tf.random.normal((batch, pixels, pixels, 3)), tf.zeros((batch, 14))

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.nn.sigmoid_cross_entropy_with_logits(targets, model(images, training=True))
            loss = tf.reduce_mean(loss)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    def take(steps: int) -> None:
        for _ in range(steps):
            loss = step()
        loss.numpy()

    return take
