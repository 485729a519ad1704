"""Keras with Horovod over several nodes, the same as TensorFlow with Horovod."""

from helpers.frameworks.tensorflow_horovod_ranks import gradients

__all__ = ["gradients"]
