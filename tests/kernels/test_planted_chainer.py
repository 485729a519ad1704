"""Runs in the chainer environment: ``.venvs/chainer/bin/python -m pytest`` with this file."""

from planted import *
from planted import Tested

TESTED = Tested("chainer", ["Chainer_MultiGPU"])
