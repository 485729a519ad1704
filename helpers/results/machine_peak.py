"""Compare each run's FLOP/s with those of a matrix product on its devices."""

from helpers.results.comparison import Comparison, latest_of_each
from helpers.results.tables import Cell, Table, of_run, share, table
from helpers.training import arithmetic


def table_of(compared: Comparison) -> Table:
    """Each run's FLOP/s on synthetic data, next to those of a matrix product on its devices.

    Runs whose record has no FLOP/s of training have no row.
    """
    rows = []
    for entry in latest_of_each(compared.finished):
        found = entry.content.get("arithmetic", {})
        if "synthetic" not in found:
            continue
        trained, product = found["synthetic"], found["product"]
        size = f"{found['size']} x {found['size']}"
        row = {
            "images/s": Cell(entry.content["synthetic"]["images_per_second"], "{:,.0f}".format),
            "training (GFLOP/s)": Cell(trained["flops_per_second"], arithmetic.giga),
            "matrix product (GFLOP/s)": Cell(product["flops_per_second"], arithmetic.giga),
            "size": f"{size}, {entry.content['recipe']['precision']}",
            "share": Cell(trained["share"], share, trained["low"], trained["high"]),
        }
        rows.append((of_run(entry), row))
    return table(
        "Share of the matrix-product rate",
        "run",
        rows,
        note="The share is training's FLOP/s on synthetic data divided by those of a matrix "
        "product on the same devices in the same rounds. The product is a measured reference, not "
        "the hardware's limit. Training's FLOPs are three times those of the forward pass. "
        "Brackets hold the rounds' minimum and maximum.",
    ).without_uniform("size")
