"""Draw the report's charts; each function returns a chart, or None with nothing to draw."""

from helpers.results.charts.learning import curves
from helpers.results.charts.scaling import scaling
from helpers.results.charts.speed import parts
from helpers.results.charts.style import Chart
from helpers.results.charts.traces import traces

__all__ = ["Chart", "curves", "parts", "scaling", "traces"]
