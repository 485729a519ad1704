"""From the NIH's archives, or from nothing, to files ready to train on.

    catalog = data_prep.read_catalog("data/demo-38")
    parts = data_prep.split_by_patient(catalog, seed=0)
    targets = data_prep.labels(parts["train"])          # uint8, (images, 14)

The command line is `data-prep` (or `python -m data_prep`).
"""

from data_prep.catalog import FINDINGS, labels, read_catalog
from data_prep.demo import make_demo
from data_prep.errors import DataError
from data_prep.images import read_grey
from data_prep.resize import resize_folder
from data_prep.split import split_by_patient

__all__ = [
    "FINDINGS",
    "DataError",
    "labels",
    "make_demo",
    "read_catalog",
    "read_grey",
    "resize_folder",
    "split_by_patient",
]
