"""Which logical cores of this machine are threads of one core: where a loader may run.

Linux says it in text files, one a logical core.
"""

from collections.abc import Collection
from pathlib import Path

SAME, SIBLING, OTHERS = "the same core", "its sibling thread", "other cores"
LISTS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"


def listed(text: str) -> set[int]:
    """Logical cores as the kernel lists them: ``0-2,8`` is {0, 1, 2, 8}."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def siblings(core: int, lists: str = LISTS) -> set[int]:
    """The other threads of a logical core's core; empty where it has none or nobody says.

    Args:
        core: its number.
        lists: the path of the system's list of each logical core.
    """
    path = Path(lists.format(core))
    return listed(path.read_text(encoding="ascii")) - {core} if path.exists() else set()


def beside(core: int, usable: Collection[int], threads: Collection[int]) -> dict[str, set[int]]:
    """Masks for a process that works for another, by where it is put; those that there are.

    Args:
        core: the logical core of the other process.
        usable: those that both may use.
        threads: its :func:`siblings`.
    """
    allowed = set(usable)
    masks = {
        SAME: {core},
        SIBLING: set(threads) & allowed,
        OTHERS: allowed - {core} - set(threads),
    }
    return {place: mask for place, mask in masks.items() if mask}
