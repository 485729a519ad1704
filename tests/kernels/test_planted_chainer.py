"""Runs in the chainer environment: ``.venvs/chainer/bin/python -m pytest`` with this file."""

from planted_cells import *
from plants_chainer import TESTED as TESTED
