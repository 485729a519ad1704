"""Split images into train, valid and test, and find groups (patients) in two splits."""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from data_prep.errors import DataError, count_text

SPLITS = ("train", "valid", "test")


def split_groups(
    groups: Sequence[Hashable],
    *,
    seed: int = 0,
    fractions: Sequence[float] = (0.7, 0.1, 0.2),
    may_be_empty: Sequence[str] = (),
) -> dict[str, np.ndarray]:
    """Split images into train, valid and test, with no group (patient) in two splits.

    The same seed gives the same splits for every order of the images: groups are ordered by a hash
    of seed and group, not by a random generator, whose stream a new version may change. `fractions`
    are of the groups. Returns the indices of each split, ascending int64.
    """
    shares = [float(share) for share in fractions]
    if len(shares) != len(SPLITS) or min(shares) < 0 or not math.isclose(sum(shares), 1.0):
        raise DataError(f"the fractions are {tuple(fractions)}; they must be three with the sum 1")
    members = list(dict.fromkeys(groups))
    texts = (f"{seed}/{member}".encode("utf-8", "surrogateescape") for member in members)
    digests = b"".join(hashlib.blake2b(text, digest_size=16).digest() for text in texts)
    halves = np.frombuffer(digests, dtype=">u8").reshape(-1, 2)
    order = np.lexsort((halves[:, 1], halves[:, 0]))  # in the order of the bytes
    # Rounding each boundary, not each split, so that the splits always add up to all patients.
    cuts = [round(len(order) * share) for share in (shares[0], shares[0] + shares[1])]
    codes = np.full(len(order), 2, dtype=np.int8)
    codes[order[: cuts[1]]] = 1
    codes[order[: cuts[0]]] = 0
    if len(members) < len(groups):
        place = {member: at for at, member in enumerate(members)}
        codes = codes[[place[group] for group in groups]]
    found = {split: np.flatnonzero(codes == at) for at, split in enumerate(SPLITS)}
    for split, rows in found.items():
        if not len(rows) and split not in may_be_empty:
            fix = "use more groups or other shares"
            if len(members) == 1:
                fix = (
                    f"{members[0]} is the group of all images, and no group is in two splits."
                    " Add groups, use smaller groups, or assign the images to splits yourself"
                )
            count = count_text(members, "group (patient)", "groups (patients)")
            raise DataError(
                f"no images left in the {split} split: {count} split"
                f" {'/'.join(f'{share:g}' for share in shares)}; {fix}"
            )
    return found


#: How paths name patients: by a word and a number, or as the NIH does, 00000013_005.png.
PATIENTS = (
    "(?i)(?:patient|subject|person|participant|pat|subj|sub|pid)[ _-]?[0-9]+",
    r"(?<![0-9])[0-9]{8}(?=_[0-9]{3}\.)",
)


class Groups(NamedTuple):
    """What is known about the groups of a split."""

    text: str
    """How many groups there are and whether any is in two splits, without a full stop."""
    is_leak: bool
    """Whether a group, or a patient that the paths name, is in two splits."""


def shared_groups(
    groups: Sequence[Hashable], splits: Mapping[str, np.ndarray]
) -> dict[Hashable, list[str]]:
    """Return each group that is in several splits, with these splits."""
    where: dict[Hashable, list[str]] = defaultdict(list)
    for split, images in splits.items():
        for group in {groups[at] for at in images.tolist()}:
            where[group].append(split)
    return {group: names for group, names in where.items() if len(names) > 1}


def patients_in_paths(paths: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the pattern by which all paths name a patient, and the patient of each image."""
    for pattern in PATIENTS:
        finds = re.compile(pattern).search
        found = [match[0] if (match := finds(path)) else "" for path in paths]
        if all(found) and 1 < len({*found}) < len(found):
            words = {patient.rstrip("0123456789") for patient in found}
            if len(words) == 1 and (word := min(words)):  # as this set has it
                pattern = f"{re.escape(word)}[0-9]+"
            return pattern, found
    return None


def describe_groups(
    groups: Sequence[Hashable] | None, paths: Sequence[str], splits: Mapping[str, np.ndarray]
) -> Groups:
    """Describe the groups of images, each with its path; `splits` are the indices of each split."""
    if groups is not None:
        shared = shared_groups(groups, splits)
        count = count_text({*groups}, "group (patient)", "groups (patients)")
        return Groups(f"{count}, {_where(shared)}", bool(shared))
    named = patients_in_paths(paths)
    if named is None:
        return Groups("every image is its own group", False)
    pattern, patients = named
    shared = shared_groups(patients, splits)
    return Groups(
        f"every image is its own group although the paths name {len({*patients}):,} patients,"
        f" {_where(shared)}; group them with --group '{pattern}' (in a recipe or a table: group),"
        " or with --group '.+' if they are not patients",
        bool(shared),
    )


def _where(shared: Mapping[Hashable, list[str]]) -> str:
    if not shared:
        return "none in two splits"
    group, names = min(shared.items(), key=lambda item: str(item[0]))
    return f"{len(shared):,} of them in two splits, the first: {group} in {' and '.join(names)}"
