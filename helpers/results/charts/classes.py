"""Draw the chart of the test part by finding or class."""

import numpy as np
from matplotlib.figure import Figure

from helpers.record.tasks import capital
from helpers.results import by_class as numbers
from helpers.results.charts.style import Chart, described, key, line_of, name_rows, note
from helpers.results.comparison import Comparison, widest
from helpers.results.tables import Cell
from helpers.training.figure_style import (
    FAINT,
    GRID,
    LONGEST,
    LONGEST_NARROW,
    NARROW,
    figure_of,
    legend_below,
    safe,
)


def by_class(compared: Comparison) -> Chart | None:
    """The test part by finding or class and as a whole, with 95 % intervals.

    Each framework on its most devices; None of more than ``by_class.MOST`` classes.
    """
    entries, task, metric = widest(compared.finished), compared.task, compared.task.metric
    names = list(dict.fromkeys(name for entry in entries for name in numbers.rows(entry)))
    if not 0 < len(names) <= numbers.MOST:
        return None
    parts = []
    for entry in entries:
        value, low, high = metric.of(entry.content["test"])
        parts.append(f"{entry.run} {Cell(value, metric.text, low, high)}")
    return Chart(
        task.file,
        f"{capital(metric.short)} per {task.one}",
        described(f"Test {metric.short} per {task.one} with 95 % intervals. {task.wholes}", parts),
        lambda width: _by_class(compared, names, width),
        numbers.not_in_mean(compared),
        folded=True,
    )


def _by_class(compared: Comparison, names: list[str], width: float) -> Figure:
    entries, task = widest(compared.finished), compared.task
    rows = [*names, task.whole]
    spread = min(0.8, 0.16 * (len(entries) - 1))
    offsets = np.linspace(-spread / 2, spread / 2, len(entries)) if len(entries) > 1 else [0.0]
    figure, axes = figure_of(1.4 + len(rows) * max(0.3, 0.11 * len(entries)), width)
    shown, scale = set(), task.metric.scale
    for entry, offset in zip(entries, offsets, strict=True):
        each = numbers.rows(entry)
        found = [*map(each.get, names), numbers.Row(*task.metric.of(entry.content["test"]))]
        mark = line_of(entry.label, [other.label for other in entries]) | {"ls": "none"}
        for row, one in enumerate(found):
            value, low, high = one or (None, None, None)
            if value is None:
                continue
            shown.add(row)
            if low is not None and high is not None:
                ends = [scale * low, scale * high]
                axes.plot(ends, [row + offset] * 2, color=mark["color"], lw=1.5, alpha=0.7)
            axes.plot(scale * value, row + offset, **mark)
        key(axes, safe(entry.run), **mark)
    for row in range(len(names)):
        if row not in shown:
            note(axes, "not computable", (0.5 * scale, row), (6, 0), color=FAINT)
    for chance in numbers.chances(entries):
        axes.axvline(scale * chance, color=FAINT, lw=1, ls=":")
    axes.axhline(len(names) - 0.5, color=GRID, lw=1.2)
    longest = LONGEST if width >= NARROW else LONGEST_NARROW
    name_rows(axes, [safe(name.replace("_", " "), longest) for name in rows], above=0.6, below=0.6)
    unit = ", %" if task.metric.percent else ""
    axes.set_xlabel(f"test {task.metric.short}{unit}; lines: 95 % interval, dotted: chance")
    legend_below(figure, axes)
    return figure
