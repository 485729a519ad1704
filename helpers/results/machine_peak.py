"""Compare each run's FLOP/s with those of a matrix product on the same devices."""

import pandas as pd

from helpers.results.comparison import Comparison, latest_of_each
from helpers.training import arithmetic


def table(compared: Comparison) -> pd.DataFrame:
    """Rows runs: images/s on synthetic data, GFLOP/s of training and of the product, the share.

    Runs whose record has no FLOP/s of training have no row.
    """
    rows = {}
    for entry in latest_of_each(compared.finished):
        found = entry.content.get("arithmetic", {})
        if "synthetic" not in found:
            continue
        precision, product = entry.content["recipe"]["precision"], found["product"]
        rows[entry.timed] = {
            "images/s": f"{entry.content['synthetic']['images_per_second']:,.0f}",
            "training (GFLOP/s)": arithmetic.giga(found["synthetic"]["flops_per_second"]),
            "matrix product (GFLOP/s)": (
                f"{arithmetic.giga(product['flops_per_second'])} "
                f"({found['size']} x {found['size']}, {precision})"
            ),
            "share": arithmetic.percent(found["synthetic"]),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("run")
