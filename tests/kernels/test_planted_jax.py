"""Runs in the jax environment: ``.venvs/jax/bin/python -m pytest`` with this file."""

from planted_cells import *
from plants_jax import TESTED as TESTED
