"""Draw the chart of an iteration's time by number of nodes."""

from matplotlib.figure import Figure

from helpers.results.charts.style import faded
from helpers.results.comparison import Comparison
from helpers.results.scaling import over_nodes
from helpers.training.figure_style import (
    FAINT,
    SHARES,
    WIDTH,
    heading,
    legend_below,
    safe,
    small_multiples,
    styled,
)

PARTS = {
    "own": ("forward, backward, update", SHARES[0]),
    "all_reduce": ("all-reduce that is not hidden", SHARES[3]),
}


@styled
def iterations(compared: Comparison, *, width: float = WIDTH) -> Figure | None:
    """A bar a run, of a rank's own work with the all-reduce on top, in ms; a panel a series.

    None where no series was run on several numbers of nodes.
    """
    found = over_nodes.numbers(compared)
    if found.empty:
        return None
    series = list(found.groupby("series", sort=False))
    figure, grid = small_multiples(len(series), width, 3.0, same_x=False)
    for axes, (name, rows) in zip(grid, series, strict=True):
        bottom = 0.0 * rows["own"]
        for part, (text, colour) in PARTS.items():
            height = 1000 * rows[part].clip(lower=0)
            places, shade = range(len(rows)), faded(colour, 0.85)
            axes.bar(places, height, 0.55, bottom=bottom, color=shade, label=text)
            bottom = bottom + height
        axes.set_xticks(range(len(rows)), list(rows["where"]), fontsize=8)
        axes.set_xlabel("nodes x devices of each")
        heading(axes, safe(str(name), 24))
    figure.supylabel("ms a step", fontsize=9, color=FAINT)
    legend_below(figure, grid[0])
    return figure
