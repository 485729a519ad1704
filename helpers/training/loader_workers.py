"""The CPU cores for a loader's workers, and the numbers of workers that are worth trying."""

from data_prep.files import core_count


def usable_cores() -> int:
    """CPU cores that this process may use, as data-prep counts them."""
    return core_count()


def candidates(cores: int | None = None) -> list[int]:
    """The worker counts worth trying: 0 (the training process itself), 1, 2, 4 ... 2 x cores."""
    most = 2 * (cores or usable_cores())
    counts = [0, 1]
    while counts[-1] * 2 <= most:
        counts.append(counts[-1] * 2)
    return counts
