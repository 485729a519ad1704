"""Efficiencies that others published of many GPUs, to stand beside a model; not measured here."""

from typing import NamedTuple


class Point(NamedTuple):
    """One published figure; what it is held against, each paper chose for itself."""

    who: str
    devices: int
    efficiency: float
    """1 is perfect."""


POINTS = (
    Point("ChainerMN", 4, 0.88),
    Point("ChainerMN", 128, 0.7916),
    Point("Goyal", 256, 0.90),
    Point("Akiba", 1024, 0.80),
    Point("Mikami", 1088, 0.9162),
    Point("Jia", 2048, 0.879),
)
CALIBRATED = (
    "Calibrated, theirs: on Oakforest-PACS RSAP made ChainerMN's all-reduce 2.1 times faster, on "
    "grids of 64x4, 2x128 and 16x16 ranks (Hanawa, Tamura)."
)
