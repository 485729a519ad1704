"""Compare each run's FLOP/s with those of a matrix product on its devices."""

from typing import Any

from helpers.results.comparison import Comparison, Entry, latest_of_each
from helpers.results.tables import Cell, Table, of_run, share, table
from helpers.training import arithmetic


def table_of(compared: Comparison) -> Table:
    """Each run's FLOP/s on synthetic data, next to those of a matrix product on its devices.

    The share is of the fastest product of any run of that precision on as many devices. Runs whose
    record has no FLOP/s of training have no row.
    """
    rows, sizes = [], set[str]()
    runs = [e for e in latest_of_each(compared.finished) if "arithmetic" in e.content]
    best: dict[tuple[Any, ...], float] = {}
    for entry in runs:
        product = entry.content["arithmetic"]["product"]["flops_per_second"]
        best[_alike(entry)] = max(product, best.get(_alike(entry), 0.0))
    for entry in runs:
        found = entry.content["arithmetic"]
        if "synthetic" not in found:
            continue
        trained, peak = found["synthetic"]["flops_per_second"], best[_alike(entry)]
        sizes.add(f"{found['size']} x {found['size']} in {entry.content['recipe']['precision']}")
        row = {
            "images/s": Cell(entry.content["synthetic"]["images_per_second"], "{:,.0f}".format),
            "training (GFLOP/s)": Cell(trained, arithmetic.giga),
            "matrix product (GFLOP/s)": Cell(found["product"]["flops_per_second"], arithmetic.giga),
            "share": Cell(trained / peak, share),
        }
        rows.append((of_run(entry), row))
    return table(
        "Share of the matrix-product rate",
        "run",
        rows,
        note="The share is training's FLOP/s on synthetic data divided by those of the fastest "
        "matrix product of any framework on as many such devices, in the same precision. The "
        f"product ({', '.join(sorted(sizes))}) is a measured reference, not the hardware's limit. "
        "Training's FLOPs are three times the forward pass's. Figures are medians of the rounds.",
        folded=True,
    )


def _alike(entry: Entry) -> tuple[Any, ...]:
    """What the runs have in common whose products are compared."""
    devices = entry.content["devices"]
    return entry.content["recipe"]["precision"], devices["kind"], *devices["names"]
