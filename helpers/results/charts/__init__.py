"""The pictures of the comparison, for the notebook and the report alike.

Each function takes a comparison and a width in inches, and returns a figure that a notebook shows
by itself, or None where there is nothing to draw.
"""

from helpers.results.charts.learning import by_class, clock_curves, curves
from helpers.results.charts.speed import placed, scaling, throughput
from helpers.results.charts.style import COLOURS, MARKERS
from helpers.results.charts.utilisation_and_energy import attribution, energy, traces, utilisation
from helpers.training.figure_style import Chart

__all__ = [
    "COLOURS",
    "MARKERS",
    "Chart",
    "attribution",
    "by_class",
    "clock_curves",
    "curves",
    "energy",
    "placed",
    "scaling",
    "throughput",
    "traces",
    "utilisation",
]
