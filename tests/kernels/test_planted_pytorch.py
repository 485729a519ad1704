"""Runs in the pytorch environment: ``.venvs/pytorch/bin/python -m pytest`` with this file."""

from planted_cells import *
from plants_pytorch import TESTED as TESTED
