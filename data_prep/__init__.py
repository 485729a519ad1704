"""Prepare published images for training, or generate synthetic images.

Read a data set of any format:

    reader = data_prep.open_reader("cifar10", "data/cifar10", channels=3)
    reader.classes, reader.targets  # names; int64 (images,), or uint8 (images, findings)
    splits = reader.splits()  # indices of train, valid and test
    image = reader.read(0)  # uint8 (32, 32, 3)

The command line is `data-prep` (or `python -m data_prep`). Importing data_prep is fast: pandas and
other packages are imported when a function is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from data_prep.errors import DataError

if TYPE_CHECKING:
    from data_prep.image_decoding import read_grey as read_grey
    from data_prep.manifest import is_complete as is_complete
    from data_prep.manifest import is_packed as is_packed
    from data_prep.readers import check_reader as check_reader
    from data_prep.readers import open_reader as open_reader
    from data_prep.readers.nih import FINDINGS as FINDINGS
    from data_prep.resize import resize_folder as resize_folder
    from data_prep.synthetic_nih import generate_nih as generate_nih

#: The module of each name.
_LAZY = {
    "FINDINGS": "readers.nih",
    "check_reader": "readers",
    "is_complete": "manifest",
    "is_packed": "manifest",
    "generate_nih": "synthetic_nih",
    "open_reader": "readers",
    "read_grey": "image_decoding",
    "resize_folder": "resize",
}
__all__ = ["DataError", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'data_prep' has no attribute {name!r}")
    return getattr(importlib.import_module(f"data_prep.{_LAZY[name]}"), name)
