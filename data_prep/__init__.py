"""Prepare published images for training, or generate synthetic images.

Read a folder in the NIH's format as tables:

    catalog = data_prep.read_catalog("data/nih-264")
    parts = data_prep.split_by_patient(catalog, seed=0)  # train, valid, test
    targets = data_prep.labels(parts["train"])  # uint8 (images, 14)

Read a data set of any format:

    reader = data_prep.open_reader("cifar10", "data/cifar10", channels=3)
    reader.classes, reader.targets  # names; int64 (images,), or uint8 (images, findings)
    parts = reader.parts()  # indices of train, valid and test
    image = reader.read(0)  # uint8 (32, 32, 3)

The command line is `data-prep` (or `python -m data_prep`). Importing data_prep is fast: pandas and
other packages are imported when a function is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from data_prep.errors import DataError

if TYPE_CHECKING:
    from data_prep.download import nih_sources as nih_sources
    from data_prep.folder_state import is_complete as is_complete
    from data_prep.folder_state import is_packed as is_packed
    from data_prep.image_decoding import read_grey as read_grey
    from data_prep.nih_pipeline import prepare_nih as prepare_nih
    from data_prep.packed import pack_folder as pack_folder
    from data_prep.preview import preview_folder as preview_folder
    from data_prep.readers import check_reader as check_reader
    from data_prep.readers import open_reader as open_reader
    from data_prep.readers.nih import labels as labels
    from data_prep.readers.nih import read_catalog as read_catalog
    from data_prep.readers.nih_labels import FINDINGS as FINDINGS
    from data_prep.resize import resize_folder as resize_folder
    from data_prep.split import split_by_patient as split_by_patient
    from data_prep.synthetic_nih import generate_nih as generate_nih
    from data_prep.verify import verify_folder as verify_folder

#: The module of each name.
_LAZY = {
    "FINDINGS": "readers.nih_labels",
    "check_reader": "readers",
    "is_complete": "folder_state",
    "is_packed": "folder_state",
    "labels": "readers.nih",
    "generate_nih": "synthetic_nih",
    "nih_sources": "download",
    "open_reader": "readers",
    "pack_folder": "packed",
    "prepare_nih": "nih_pipeline",
    "preview_folder": "preview",
    "read_catalog": "readers.nih",
    "read_grey": "image_decoding",
    "resize_folder": "resize",
    "split_by_patient": "split",
    "verify_folder": "verify",
}
__all__ = ["DataError", *_LAZY]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'data_prep' has no attribute {name!r}")
    return getattr(importlib.import_module(f"data_prep.{_LAZY[name]}"), name)
