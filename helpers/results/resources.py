"""Show what training used: energy, memory, the time of the first step."""

from helpers.results import tables
from helpers.results.comparison import Comparison
from helpers.results.repeated_runs import summarise
from helpers.results.tables import ABSENT, Table, of_row, ranged, short_number, time_column


def table(compared: Comparison) -> Table:
    """A row a label and number of devices, without the columns for which no run has a figure."""
    found = summarise(compared)
    unit, clock = time_column(found["first_step_seconds_high"])
    heads = {
        "energy (kJ)": ("joules", short_number, 1000.0),
        "images per joule": ("images_per_joule", "{:.3g}".format, 1.0),
        "peak memory of a device (GiB)": ("peak_bytes", short_number, 2.0**30),
        f"first step ({unit})": ("first_step_seconds", clock, 1.0),
    }
    rows = [
        (
            of_row(row),
            {
                head: ranged(row, figure, form, divisor, missing=ABSENT)
                for head, (figure, form, divisor) in heads.items()
            },
        )
        for row in found.to_dict("records")
    ]
    return tables.table(
        "Energy, memory and the first step",
        "run",
        rows,
        note="Energy is that of the GPUs while training. Peak memory counts all processes on a "
        "GPU, but only a CPU device's own.",
        folded=True,
    )
