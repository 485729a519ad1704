"""Repeats of a run told together: the median, and the spread from the least to the most.

Runs are repeats of each other where label (framework, notebook, and the settings that differ
within the comparison) and number of devices are the same.
"""

from collections.abc import Callable

import pandas as pd

from helpers.comparison import Comparison, order, results

FIGURES = (
    "seconds",
    "images_per_second",
    "first_step_seconds",
    "synthetic_seconds",
    "synthetic_images_per_second",
    "loader_images_per_second",
    "mean_auc",
    "joules",
    "images_per_joule",
)


def summarise(compared: Comparison) -> pd.DataFrame:
    """One row a label and number of devices, in the order of the frameworks.

    Columns: label, devices, kind, runs (how many repeats), comparable (every one passed its
    certificate), synthetic_scaled, and for each of ``FIGURES`` its median under its own name
    and its extremes under ``<figure>_low`` and ``<figure>_high``.
    """
    numbers = results(compared)
    rows = []
    for (label, count), group in numbers.groupby(["label", "devices"], sort=False):
        row = {
            "label": label,
            "devices": int(count),
            "kind": group["kind"].iloc[0],
            "runs": len(group),
            "comparable": bool(group["comparable"].all()),
            "synthetic_scaled": bool(group["synthetic_scaled"].any()),
        }
        for figure in FIGURES:
            values = group[figure].astype(float)
            row |= {
                figure: values.median(),
                f"{figure}_low": values.min(),
                f"{figure}_high": values.max(),
            }
        rows.append(row)
    columns = ["label", "devices", "kind", "runs", "comparable", "synthetic_scaled"]
    columns += [figure + end for figure in FIGURES for end in ("", "_low", "_high")]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.sort_values(
        ["label", "devices"],
        key=lambda column: column.map(order) if column.name == "label" else column,
        ignore_index=True,
    )


def told(
    row: pd.Series, figure: str, text: Callable[[float], str], divisor: float = 1.0, mark: str = ""
) -> str:
    """``27.4``, or ``27.4 (26.9 to 28.0)`` where there were repeats; ``n/a`` without a value.

    ``row`` is one of :func:`summarise`; ``mark`` stands before the median.
    """
    value = row[figure]
    if pd.isna(value):
        return "n/a"
    shown = mark + text(value / divisor)
    if row["runs"] == 1:
        return shown
    low, high = row[f"{figure}_low"] / divisor, row[f"{figure}_high"] / divisor
    return f"{shown} ({text(low)} to {text(high)})"
