"""Draw the charts of the comparison for the notebook and the report.

Each function takes a comparison and a width in inches, and returns a figure that a notebook shows
by itself, or None where there is nothing to draw.
"""

from helpers.results.charts.first_screen import first
from helpers.results.charts.iterations import iterations
from helpers.results.charts.learning import (
    by_class,
    clock_curves,
    curves,
    devices_against_images,
    devices_against_time,
    image_curves,
)
from helpers.results.charts.more_devices import factors, pareto, scaling, steps
from helpers.results.charts.speed import placed, throughput
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
    "devices_against_images",
    "devices_against_time",
    "energy",
    "factors",
    "first",
    "image_curves",
    "iterations",
    "pareto",
    "placed",
    "scaling",
    "steps",
    "throughput",
    "traces",
    "utilisation",
]
