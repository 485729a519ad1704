"""Runs in the pytorch environment: ``.venvs/pytorch/bin/python -m pytest`` with this file."""

from planted import *
from planted import Tested

TESTED = Tested("pytorch", ["PyTorch_MultiGPU", "PyTorch_MultiGPU_Exp_Loss"])
