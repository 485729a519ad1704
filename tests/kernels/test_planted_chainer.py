"""Runs in the chainer environment: ``.venvs/chainer/bin/python -m pytest`` with this file."""

from collections.abc import Iterator

import chainer
import pytest
from planted_cells import *
from plants_chainer import TESTED as TESTED


@pytest.fixture(autouse=True)
def _train_again() -> Iterator[None]:
    """What one plant does to Chainer's switch must not reach the next test."""
    yield
    chainer.config.train = True
