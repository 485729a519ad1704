"""Runs in the tensorflow environment: ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

from planted import *
from planted import Tested

TESTED = Tested("tensorflow", ["TensorFlow_MultiGPU"])
