"""Runs in the tensorflow environment: ``.venvs/tensorflow/bin/python -m pytest`` with this file."""

from planted_cells import *
from plants_keras import TESTED as TESTED
