"""Draw the charts of the comparison for the report.

Each function takes a comparison and returns a chart, or None where there is nothing to draw.
"""

from helpers.results.charts.classes import by_class
from helpers.results.charts.learning import curves, devices_against
from helpers.results.charts.parts import attribution, traces
from helpers.results.charts.scaling import factors, scaling
from helpers.results.charts.speed import energy, first, placed, throughput
from helpers.results.charts.style import Chart

__all__ = [
    "Chart",
    "attribution",
    "by_class",
    "curves",
    "devices_against",
    "energy",
    "factors",
    "first",
    "placed",
    "scaling",
    "throughput",
    "traces",
]
