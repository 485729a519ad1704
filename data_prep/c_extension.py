"""The functions of ``_grey.c``; each is None where there was no C compiler."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

_grey: Any = None
with contextlib.suppress(ImportError):  # nobody could compile it
    _grey = importlib.import_module("data_prep._grey")

unfilter: Callable[[bytes, np.ndarray, int, int], None] | None = getattr(_grey, "unfilter", None)
shrink: Callable[[np.ndarray, np.ndarray, int, int, int], bool] | None
shrink = getattr(_grey, "shrink", None)
#: Missing too where it was compiled by an earlier version.
mirror: Callable[[np.ndarray, np.ndarray], bool] | None = getattr(_grey, "mirror", None)
