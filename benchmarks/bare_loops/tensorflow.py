"""Train with plain TensorFlow: Keras's DenseNet121 and Adam in a step under ``tf.function``."""

import os
from collections.abc import Callable

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import tensorflow as tf

OPTIONS: dict[str, dict[str, object]] = {
    "as it comes": {},
    "without Grappler's passes": {"grappler": False},
}
SLOW: dict[str, dict[str, object]] = {"XLA": {"xla": True}}


def make(
    pixels: int, batch: int, *, grappler: bool = True, xla: bool | None = None
) -> Callable[[int], None]:
    keras.utils.set_random_seed(0)
    model = keras.applications.DenseNet121(
        weights=None, input_shape=(pixels, pixels, 3), classes=14, classifier_activation=None
    )
    optimizer = keras.optimizers.Adam(1e-4)
    optimizer.build(model.trainable_variables)
    images, targets = tf.random.normal((batch, pixels, pixels, 3)), tf.zeros((batch, 14))

    @tf.function(autograph=False, jit_compile=xla)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.nn.sigmoid_cross_entropy_with_logits(targets, model(images, training=True))
            loss = tf.reduce_mean(loss)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    def take(steps: int) -> None:
        # Read when a graph is called, and for the whole process: each turn sets its own.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": not grappler})
        for _ in range(steps):
            loss = step()
        loss.numpy()

    return take
