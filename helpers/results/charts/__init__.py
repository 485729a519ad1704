"""Draw the charts of the comparison for the report.

Each function takes a comparison and returns a chart, or None where there is nothing to draw.
"""

from helpers.results.charts.learning import curves
from helpers.results.charts.scaling import scaling
from helpers.results.charts.speed import parts
from helpers.results.charts.style import Chart
from helpers.results.charts.traces import traces

__all__ = ["Chart", "curves", "parts", "scaling", "traces"]
