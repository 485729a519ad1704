"""Draw the charts of the comparison for the notebook and the report.

Each function takes a comparison and returns a chart, which a notebook shows by itself, or None
where there is nothing to draw.
"""

from helpers.results.charts.classes import by_class
from helpers.results.charts.learning import curves, devices_against
from helpers.results.charts.parts import attribution, iterations, steps, traces, utilisation
from helpers.results.charts.scaling import factors, pareto, scaling
from helpers.results.charts.speed import energy, first, placed, throughput
from helpers.results.charts.style import COLOURS, MARKERS, Chart

__all__ = [
    "COLOURS",
    "MARKERS",
    "Chart",
    "attribution",
    "by_class",
    "curves",
    "devices_against",
    "energy",
    "factors",
    "first",
    "iterations",
    "pareto",
    "placed",
    "scaling",
    "steps",
    "throughput",
    "traces",
    "utilisation",
]
