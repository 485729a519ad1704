"""What the charts show, in words: for those who hear the report instead of seeing it."""

from collections.abc import Iterable

from helpers import learning, waits
from helpers.comparison import Comparison, devices, widest
from helpers.repeats import summarise
from helpers.scaling import scaling as scaling_numbers
from helpers.tables import short_number


def repeats(compared: Comparison) -> str:
    """How repeats are told in the tables; nothing where there are none."""
    numbers = summarise(compared)
    if numbers.empty or numbers["runs"].max() == 1:
        return "Each figure is of one run, so its spread is not known."
    low, high = numbers["runs"].min(), numbers["runs"].max()
    count = str(low) if low == high else f"{low} to {high}"
    return f"The median of {count} repeats, in brackets the least and the most."


def throughput(compared: Comparison) -> str:
    return _told(
        "Images per second",
        (
            f"{row['label']} on {devices(row['devices'])} "
            f"{short_number(row['images_per_second'])} from files, "
            f"{short_number(row['synthetic_images_per_second'])} synthetic, "
            f"{short_number(row['loader_images_per_second'])} by the loader alone"
            for _, row in summarise(compared).iterrows()
        ),
    )


def placed(compared: Comparison) -> str:
    return _told(
        "Training time by framework and number of devices, beside the times published in 2018",
        (
            f"{row['label']} on {devices(row['devices'])} {row['seconds']:.0f} s"
            for _, row in summarise(compared).iterrows()
        ),
    )


def scaling(compared: Comparison) -> str:
    numbers = scaling_numbers(compared)
    return _told(
        "Lines of throughput and parallel efficiency against devices",
        (
            f"{row['label']} on {devices(row['devices'])} {100 * row['efficiency']:.0f} %"
            for _, row in numbers[numbers["devices"] > numbers["base"]].iterrows()
        ),
    )


def curves(compared: Comparison, *, clock: bool = False) -> str:
    across = "seconds" if clock else "epochs"
    parts = []
    for entry in widest(compared.entries):
        epochs = learning.history(entry)
        if not epochs.empty:
            end = epochs.iloc[-1]
            parts.append(
                f"{entry.run} ends after {end['clock']:.0f} s with validation loss "
                f"{end['valid_loss']:.3f} and AUC {end['valid_auc']:.3f}"
            )
    return _told(f"Losses and validation AUC against {across}", parts)


def auc(compared: Comparison) -> str:
    means = ((entry.run, entry.content["test"]["mean_auc"]) for entry in widest(compared.finished))
    return _told(
        "Test AUC per finding with 95 % intervals; the table below has the numbers. Means",
        (f"{run} {'n/a' if mean is None else f'{mean:.3f}'}" for run, mean in means),
    )


def shares(compared: Comparison) -> str:
    found = waits.table(compared)
    return _told(
        "Shares of an epoch with the least and the most of the rounds; the table has them too",
        (
            f"{run} " + ", ".join(f"{name} {text}" for name, text in row.items())
            for run, row in found.iterrows()
        ),
    )


def energy(compared: Comparison) -> str:
    numbers = summarise(compared).dropna(subset=["images_per_joule"])
    return _told(
        "Images trained per joule",
        (
            f"{row['label']} on {devices(row['devices'])} {row['images_per_joule']:.3g}"
            for _, row in numbers.iterrows()
        ),
    )


def _told(what: str, parts: Iterable[str]) -> str:
    return f"{what}: {'; '.join(parts)}."
