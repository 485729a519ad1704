"""TensorFlow over two nodes. ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

from nodes_tests import *

from helpers.frameworks import tensorflow

NOTEBOOK = "TensorFlow_MultiGPU"
TWO = tensorflow.list_devices("cpu", 2)  # before TensorFlow begins to compute
