"""Describe the groups (patients) of a data set, and find groups that are in two parts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from data_prep.errors import count_text

#: How paths name patients: by a word and a number, or as the NIH does, 00000013_005.png.
PATIENTS = (
    "(?i)(?:patient|subject|person|participant|pat|subj|sub|pid)[ _-]?[0-9]+",
    r"(?<![0-9])[0-9]{8}(?=_[0-9]{3}\.)",
)


class Groups(NamedTuple):
    """What is known about the groups of a split."""

    text: str
    """How many groups there are and whether any is in two parts, without a full stop."""
    is_leak: bool
    """Whether a group, or a patient that the paths name, is in two parts."""


def shared_groups(
    groups: Sequence[Hashable], parts: Mapping[str, np.ndarray]
) -> dict[Hashable, list[str]]:
    """Return each group that is in several parts, with these parts."""
    where: dict[Hashable, list[str]] = defaultdict(list)
    for part, images in parts.items():
        for group in {groups[at] for at in images.tolist()}:
            where[group].append(part)
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
    groups: Sequence[Hashable] | None, paths: Sequence[str], parts: Mapping[str, np.ndarray]
) -> Groups:
    """Describe the groups of images, each with its path; `parts` are the indices of each part."""
    if groups is not None:
        shared = shared_groups(groups, parts)
        count = count_text({*groups}, "group (patient)", "groups (patients)")
        return Groups(f"{count}, {_where(shared)}", bool(shared))
    named = patients_in_paths(paths)
    if named is None:
        return Groups("every image is its own group", False)
    pattern, patients = named
    shared = shared_groups(patients, parts)
    return Groups(
        f"every image is its own group although the paths name {len({*patients}):,} patients,"
        f" {_where(shared)}; group them with --group '{pattern}' (in a recipe or a table: group),"
        " or with --group '.+' if they are not patients",
        bool(shared),
    )


def _where(shared: Mapping[Hashable, list[str]]) -> str:
    if not shared:
        return "none in two parts"
    group, names = min(shared.items(), key=lambda item: str(item[0]))
    return f"{len(shared):,} of them in two parts, the first: {group} in {' and '.join(names)}"
