"""Runs in the pytorch environment: ``.venvs/pytorch/bin/python -m pytest`` with this file."""

from planted import *
from planted import Tested

TESTED = Tested("keras", ["Keras_MultiGPU"], most=1, given={"backend": "torch"})
