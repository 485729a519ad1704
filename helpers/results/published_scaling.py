"""Published scaling efficiencies on many GPUs, shown next to measured ones."""

from typing import NamedTuple

from helpers.results.comparison import Comparison
from helpers.results.published import all_are


class Point(NamedTuple):
    """One published figure; each paper chose its own reference."""

    who: str
    devices: int
    efficiency: float
    """1 is perfect."""


CHAINERMN = "ChainerMN"
POINTS = (
    Point(CHAINERMN, 4, 0.88),
    Point(CHAINERMN, 128, 0.7916),
    Point("Goyal", 256, 0.90),
    Point("Akiba", 1024, 0.80),
    Point("Mikami", 1088, 0.9162),
    Point("Jia", 2048, 0.879),
)
CALIBRATED = (
    "Calibrated, theirs: on Oakforest-PACS RSAP made ChainerMN's all-reduce 2.1 times faster, on "
    "grids of 64x4, 2x128 and 16x16 ranks (Hanawa, Tamura)."
)
STUDY = {"task": "multiclass", "network": "resnet50"}
NAME = "published: ChainerMN on GPUs, 2017"


def points(compared: Comparison) -> list[Point]:
    """ChainerMN's points, if all runs have the network and the task of its study."""
    if not any(entry.task for entry in compared.entries) or not all_are(compared, STUDY):
        return []
    return [point for point in POINTS if point.who == CHAINERMN]


def notes(compared: Comparison) -> list[str]:
    """Notes on these points, if they are shown with the runs."""
    found = points(compared)
    if not found:
        return []
    each = " and ".join(f"{100 * p.efficiency:.0f} % on {p.devices} GPUs" for p in found)
    return [
        f"ChainerMN's study trained ResNet50 on ImageNet at 224 px: an efficiency of {each} "
        "against one GPU, and a top-1 of 71 to 72 % on up to 128 GPUs. The hardware and the "
        "images differ from those of these runs.",
        "The study: its post, https://chainer.org/general/2017/02/08/"
        "Performance-of-Distributed-Deep-Learning-Using-ChainerMN.html, and Akiba, Fukuda, Suzuki "
        "2017, https://arxiv.org/abs/1710.11351, which gives 90 % for 128 GPUs against four.",
    ]
