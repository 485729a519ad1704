"""What more devices bring: speed-up, and efficiency against perfect scaling."""

import pandas as pd

from helpers.results.comparability import RESUMED, marked, together
from helpers.results.comparison import Comparison
from helpers.results.comparison_tables import short_number
from helpers.results.repeated_runs import summarise


def scaling(compared: Comparison) -> pd.DataFrame:
    """How far more devices help; a row a label and number of devices beyond its fewest.

    Columns: label, devices, base (the label's fewest devices), images_per_second, ideal (the
    base's images/s times the ratio of devices), speed_up (the base's time over this one's, as
    the article counts) and efficiency (images/s over the ideal, 1 is perfect), synthetic_speed_up,
    synthetic_efficiency, comparable, marks (its own and the base's), kind. The base's own row is
    there, with 1 in each. Resumed runs are left out: their times are of their last process; and
    so are those on CPUs, whose devices share the same cores, however many they are, and those of
    replicas that share a GPU.
    """
    rows = []
    numbers = summarise(compared)
    whole = numbers["marks"].map(lambda marks: RESUMED not in marks).astype(bool)
    clean = numbers[whole & (numbers["kind"] == "gpu")]
    for label, group in clean.groupby("label", sort=False):
        base = group.iloc[0]
        for _, row in group.iterrows():
            ratio = row["devices"] / base["devices"]
            ideal = base["images_per_second"] * ratio
            fast = row["synthetic_images_per_second"] / base["synthetic_images_per_second"]
            rows.append(
                {
                    "label": label,
                    "devices": row["devices"],
                    "base": base["devices"],
                    "images_per_second": row["images_per_second"],
                    "ideal": ideal,
                    "speed_up": base["seconds"] / row["seconds"],
                    "efficiency": row["images_per_second"] / ideal,
                    "synthetic_speed_up": fast,
                    "synthetic_efficiency": fast / ratio,
                    "comparable": row["comparable"] and base["comparable"],
                    "marks": together([row["marks"], base["marks"]]),
                    "kind": row["kind"],
                }
            )
    return pd.DataFrame(rows)


def several(compared: Comparison) -> bool:
    """Whether anything was run on more than one number of GPUs."""
    numbers = scaling(compared)
    return not numbers.empty and bool((numbers["devices"] > numbers["base"]).any())


def table(compared: Comparison) -> pd.DataFrame:
    """The same as text for a reader, without the rows of the base; empty where there is one only.

    One row a framework and number of devices.
    """
    if not several(compared):
        return pd.DataFrame()
    rows = []
    for _, row in scaling(compared).iterrows():
        if row["devices"] == row["base"]:
            continue
        rows.append(
            {
                "framework": marked(row["label"], row["marks"]),
                "devices": f"{row['base']} to {row['devices']}",
                "images/s": short_number(row["images_per_second"]),
                "ideal": short_number(row["ideal"]),
                "efficiency": f"{100 * row['efficiency']:.0f} %",
                "speed-up": f"{row['speed_up']:.2f}",
                "synthetic speed-up": f"{row['synthetic_speed_up']:.2f}",
                "synthetic efficiency": f"{100 * row['synthetic_efficiency']:.0f} %",
            }
        )
    return pd.DataFrame(rows).set_index("framework")
