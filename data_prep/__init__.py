"""From the NIH's archives, or from nothing, to files ready to train on.

    catalog = data_prep.read_catalog("data/demo-small-2-38")
    parts = data_prep.split_by_patient(catalog, seed=0)
    targets = data_prep.labels(parts["train"])          # uint8, (images, 14)

The command line is `data-prep` (or `python -m data_prep`).

Importing data_prep is cheap: pandas and the rest are loaded when something is asked for, so that
the command can be interrupted from the start.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from data_prep.errors import DataError

if TYPE_CHECKING:
    from data_prep.demo import make_demo
    from data_prep.fetch import prepare_nih
    from data_prep.images import read_grey
    from data_prep.lists import split_by_lists
    from data_prep.packed import is_packed, open_packed, pack_folder
    from data_prep.prepared import is_complete
    from data_prep.readers import check_reader, open_reader
    from data_prep.readers.nih import labels, read_catalog
    from data_prep.readers.nih_labels import FINDINGS
    from data_prep.resize import resize_folder
    from data_prep.sources import nih_sources
    from data_prep.split import split_by_patient
    from data_prep.verify import verify_folder

__all__ = [
    "FINDINGS",
    "DataError",
    "check_reader",
    "is_complete",
    "is_packed",
    "labels",
    "make_demo",
    "nih_sources",
    "open_packed",
    "open_reader",
    "pack_folder",
    "prepare_nih",
    "read_catalog",
    "read_grey",
    "resize_folder",
    "split_by_lists",
    "split_by_patient",
    "verify_folder",
]

_LAZY = {
    "FINDINGS": "readers.nih_labels",
    "check_reader": "readers",
    "is_complete": "prepared",
    "is_packed": "packed",
    "labels": "readers.nih",
    "make_demo": "demo",
    "nih_sources": "sources",
    "open_packed": "packed",
    "open_reader": "readers",
    "pack_folder": "packed",
    "prepare_nih": "fetch",
    "read_catalog": "readers.nih",
    "read_grey": "images",
    "resize_folder": "resize",
    "split_by_lists": "lists",
    "split_by_patient": "split",
    "verify_folder": "verify",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'data_prep' has no attribute {name!r}")
    return getattr(importlib.import_module(f"data_prep.{_LAZY[name]}"), name)
