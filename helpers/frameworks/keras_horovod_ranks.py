"""Keras with Horovod over nodes: as TensorFlow with Horovod."""

from helpers.frameworks.tensorflow_horovod_ranks import environment, gradients

__all__ = ["environment", "gradients"]
