"""Runs in the mxnet environment: ``.venvs/mxnet/bin/python -m pytest`` with this file."""

from planted import *
from planted import Tested

TESTED = Tested("mxnet", ["MXNet_Gluon_MultiGPU"])
