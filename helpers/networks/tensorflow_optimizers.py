"""Adam and SGD in TensorFlow without Keras, which has none: their rules are PyTorch's.

One fused operation of TensorFlow updates a weight. As Keras's, an optimiser has variables on all
devices that the weights are on; each replica calls it, with the same gradients.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import tensorflow as tf


class _Optimizer(tf.Module):
    rule: str
    update: Callable[[tf.Tensor, Sequence[tf.Tensor], tf.Tensor], None]

    def __init__(
        self, network: tf.Module, weight_decay: float, moments: int, **constants: float
    ) -> None:
        super().__init__()
        self.weights = weights = list(network.trainable_variables)
        self.constants = {"weight decay": weight_decay, **constants}
        with tf.device("CPU:0"):
            self.rate = tf.Variable(0.0, trainable=False)  # which no device is waited for to read
        mirrored = isinstance(weights[0], tf.distribute.DistributedValues)
        with weights[0].distribute_strategy.scope() if mirrored else nullcontext():
            self.step = tf.Variable(0.0, trainable=False)
            self.moments = [
                [tf.Variable(tf.zeros_like(weight), trainable=False) for weight in weights]
                for _ in range(moments)
            ]

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        """Take a step; weight decay is added to the gradients of all weights."""
        if decay := self.constants["weight decay"]:
            pairs = zip(gradients, self.weights, strict=True)
            gradients = [gradient + decay * weight for gradient, weight in pairs]
        self.update(self.step.assign_add(1.0), gradients, self.rate.read_value())


class SGD(_Optimizer):
    """Gradient descent with momentum; without, it is 0."""

    def __init__(self, network: tf.Module, momentum: float, weight_decay: float) -> None:
        known = {"momentum": momentum} if momentum else {}
        super().__init__(network, weight_decay, 1, **known)
        self.rule, self.momentum = "momentum" if momentum else "sgd", momentum

    def update(self, step: tf.Tensor, gradients: Sequence[tf.Tensor], rate: tf.Tensor) -> None:
        for weight, gradient, velocity in zip(self.weights, gradients, *self.moments, strict=True):
            of = {"var": weight.handle, "accum": velocity.handle, "grad": gradient}
            tf.raw_ops.ResourceApplyMomentum(**of, lr=rate, momentum=self.momentum)


class Adam(_Optimizer):
    """TensorFlow's operation adds epsilon before the bias correction, PyTorch after it."""

    rule = "adam"

    def __init__(
        self, network: tf.Module, betas: tuple[float, float], epsilon: float, weight_decay: float
    ) -> None:
        known = {"beta 1": betas[0], "beta 2": betas[1], "epsilon": epsilon}
        super().__init__(network, weight_decay, 2, **known)
        self.betas, self.epsilon = betas, epsilon

    def update(self, step: tf.Tensor, gradients: Sequence[tf.Tensor], rate: tf.Tensor) -> None:
        beta1, beta2 = self.betas
        same = {"lr": rate, "beta1": beta1, "beta2": beta2}
        same |= {"beta1_power": beta1**step, "beta2_power": beta2**step}
        same["epsilon"] = self.epsilon * tf.sqrt(1 - same["beta2_power"])
        for weight, gradient, m, v in zip(self.weights, gradients, *self.moments, strict=True):
            of = {"var": weight.handle, "m": m.handle, "v": v.handle, "grad": gradient}
            tf.raw_ops.ResourceApplyAdam(**of, **same)
