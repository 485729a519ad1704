"""Train with plain Keras: its DenseNet121 and Adam, ``compile`` and ``fit``.

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
    "Adam by TensorFlow's kernel": {"adam": "kernel"},
    "mixed_bfloat16": {"policy": "mixed_bfloat16"},
}
SLOW: dict[str, dict[str, object]] = {"XLA, as it comes": {"xla": True}}


class KernelAdam(keras.optimizers.Adam):
    """One call of TensorFlow's kernel for each variable, where Keras's Adam makes a dozen."""

    def apply(self, grads: list, trainable_variables: list | None = None) -> None:
        step = keras.ops.cast(self.iterations + 1, "float32")
        self.powers = self.beta_1**step, self.beta_2**step
        super().apply(grads, trainable_variables)

    def update_step(
        self, gradient: tf.Tensor, variable: keras.Variable, learning_rate: tf.Tensor
    ) -> None:
        index = self._get_variable_index(variable)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].handle,
            v=self._velocities[index].handle,
            beta1_power=self.powers[0],
            beta2_power=self.powers[1],
            lr=learning_rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )


ADAM = {"keras": keras.optimizers.Adam, "kernel": KernelAdam}


def make(
    pixels: int, batch: int, *, xla: bool = False, policy: str = "float32", adam: str = "keras"
) -> Callable[[int], None]:
    keras.utils.set_random_seed(0)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    model = keras.applications.DenseNet121(
        weights=None, input_shape=(pixels, pixels, 3), classes=14, classifier_activation=None
    )
    keras.config.set_dtype_policy(before)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(optimizer=ADAM[adam](1e-4), loss=loss, jit_compile=xla)
    noise = tf.random.normal((batch, pixels, pixels, 3)), tf.zeros((batch, 14))
    data = tf.data.Dataset.from_tensors(noise).repeat()

    def take(steps: int) -> None:
        model.fit(data, steps_per_epoch=steps, verbose=0)

    return take
