"""The compiled functions of ``_grey.c``, and what replaces them if there was no C compiler."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

_grey: Any = None
with contextlib.suppress(ImportError):  # there was no C compiler
    _grey = importlib.import_module("data_prep._grey")

unfilter: Callable[[bytes, np.ndarray, int, int], None] | None = getattr(_grey, "unfilter", None)
shrink: Callable[[np.ndarray, np.ndarray, int, int, int], bool] | None
shrink = getattr(_grey, "shrink", None)
