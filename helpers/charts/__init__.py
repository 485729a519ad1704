"""The pictures of the comparison, for the notebook and the report alike.

Each function takes a comparison and a width in inches, and returns a figure that a notebook shows
by itself, or None where there is nothing to draw.
"""

from helpers.charts.learning import auc, clock_curves, curves
from helpers.charts.machine import attribution, energy, utilisation
from helpers.charts.speed import placed, scaling, throughput
from helpers.charts.style import COLOURS, MARKERS
from helpers.figures import Chart

__all__ = [
    "COLOURS",
    "MARKERS",
    "Chart",
    "attribution",
    "auc",
    "clock_curves",
    "curves",
    "energy",
    "placed",
    "scaling",
    "throughput",
    "utilisation",
]
