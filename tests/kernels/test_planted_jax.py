"""Runs in the jax environment: ``.venvs/jax/bin/python -m pytest`` with this file."""

from planted import *
from planted import Tested

TESTED = Tested("jax", ["JAX_MultiGPU"])
