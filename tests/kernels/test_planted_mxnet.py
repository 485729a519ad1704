"""Runs in the mxnet environment: ``.venvs/mxnet/bin/python -m pytest`` with this file."""

import pytest
from planted_cells import *
from plants_mxnet import TESTED as TESTED

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # MXNet's own, thousands
