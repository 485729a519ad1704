"""Describe a data set: the path, labels, group (patient) and published split of every image."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from data_prep.errors import DataError
from data_prep.split import SPLITS, shared_groups, split_groups

#: Labels of a finding that the reader of the image was unsure of, and of a finding without label.
UNCERTAIN, MISSING = -1, -2

#: Treatment of these labels: as 0, as 1, or leave out the image.
Policy = Literal["zero", "one", "ignore"]
POLICIES = ("zero", "one", "ignore")

#: Split of an image that was published without a split.
NO_SPLIT = -1


@dataclass(frozen=True)
class Catalog:
    """The images that a reader found in `folder`, one row per image."""

    folder: Path
    images: Sequence[str]
    """The name of each image; all names differ."""
    sources: Sequence[str]
    """The file of each image within the folder; of CIFAR-10, `path@offset` of a record."""
    classes: tuple[str, ...]
    """Names of the classes, or of the findings."""
    labels: np.ndarray
    """Classes: int64 (images,), each below `len(classes)`. Findings: int8 (images, findings) of 0,
    1, `UNCERTAIN` and `MISSING`."""
    groups: Sequence[Hashable] | None = None
    """The group (usually the patient) of each image; None: every image is a group."""
    splits: np.ndarray | None = None
    """int8 (images,): the place in `SPLITS` of the split it was published in, or `NO_SPLIT`."""
    passed_over: Mapping[str, int] = field(default_factory=dict)
    """The number of files beside the images that are not read as images, by ending."""

    def __len__(self) -> int:
        return len(self.images)

    @property
    def task(self) -> str:
        """`findings` (any number of them in an image) or `classes` (one an image)."""
        return "findings" if self.labels.ndim == 2 else "classes"

    def path(self, image: int) -> str:
        """Return the file of an image, or its location within a file."""
        return os.path.join(self.folder, self.sources[image])  # noqa: PTH118 (speed)

    def select(self, keep: np.ndarray) -> Catalog:
        """Return the catalogue of the images with these indices."""
        if len(keep) == len(self):
            return self
        at = keep.tolist()
        same = self.sources is self.images
        images = [self.images[i] for i in at]
        return replace(
            self,
            images=images,
            sources=images if same else [self.sources[i] for i in at],
            labels=self.labels[keep],
            groups=None if self.groups is None else [self.groups[i] for i in at],
            splits=None if self.splits is None else self.splits[keep],
        )


def ending_of(name: str) -> str:
    """Return the ending of a file's name, such as `.txt`, for `Catalog.passed_over`."""
    return os.path.splitext(name)[1].lower() or "without ending"  # noqa: PTH122 (speed)


def passed_over_text(passed_over: Mapping[str, int]) -> str:
    """Return such as `passed over: 12 .txt, 3 .csv`, or an empty text if no file was."""
    first = Counter(passed_over).most_common(9)
    parts = [f"{count:,} {name}" for name, count in first]
    if rest := sum(passed_over.values()) - sum(count for _, count in first):
        parts.append(f"{rest:,} others")
    return f"passed over: {', '.join(parts)}" if parts else ""


def apply_label_policies(
    catalog: Catalog, uncertain: Policy, missing: Policy
) -> tuple[Catalog, np.ndarray]:
    """Return the kept images and the targets, as `CatalogReader.targets`."""
    for name, policy in (("uncertain", uncertain), ("missing", missing)):
        if policy not in POLICIES:
            raise DataError(f"{name} is {policy!r}; use one of {', '.join(POLICIES)}")
    if catalog.task == "classes":
        return catalog, catalog.labels
    policies = {UNCERTAIN: uncertain, MISSING: missing}
    ignored = [code for code, policy in policies.items() if policy == "ignore"]
    kept = np.flatnonzero(~np.isin(catalog.labels, ignored).any(axis=1))
    if not len(kept):
        raise DataError(f"{catalog.folder}: no image is left: all have a label to 'ignore'")
    catalog = catalog.select(kept)
    ones = [1, *(code for code, policy in policies.items() if policy == "one")]
    return catalog, np.isin(catalog.labels, ones).astype(np.uint8)


def label_text(found: Catalog, at: int) -> str:
    """Return the class of an image, or its findings, those that are uncertain with a `?`."""
    if found.task == "classes":
        return found.classes[found.labels[at]]
    marks = {1: "", UNCERTAIN: "?"}
    row = zip(found.classes, found.labels[at].tolist(), strict=True)
    return ", ".join(f"{name}{marks[code]}" for name, code in row if code in marks) or "no finding"


def count_labels(found: Catalog, at: np.ndarray) -> np.ndarray:
    """Return the number of images with each class or finding; `at` are indices of images."""
    labels = found.labels[at]
    if found.task == "classes":
        return np.bincount(labels, minlength=len(found.classes))
    return np.asarray((labels == 1).sum(axis=0))


def split_catalog(
    catalog: Catalog,
    *,
    seed: int = 0,
    shares: Sequence[float] = (0.7, 0.1, 0.2),
    valid: float = 0.125,
) -> dict[str, np.ndarray]:
    """Return the int64 indices, ascending, of `train`, `valid` and `test`; no group is in two
    splits.

    A set that was published in one piece is split by `shares`. If a set was published as train and
    one other split, the other split is `test`, and the share `valid` of train's groups is `valid`.
    """
    groups = catalog.images if catalog.groups is None else catalog.groups
    if catalog.splits is None or (catalog.splits == NO_SPLIT).all():
        return split_groups(groups, seed=seed, fractions=shares)
    given = {split: np.flatnonzero(catalog.splits == at) for at, split in enumerate(SPLITS)}
    if len(given["test"]) == 0:
        given["valid"], given["test"] = given["test"], given["valid"]
    for split in ("train", "test"):
        if len(given[split]) == 0:
            raise DataError(f"{catalog.folder}: no images in the {split} split; add some")
    if catalog.groups is not None and (shared := shared_groups(catalog.groups, given)):
        group, (one, other, *_) = next(iter(shared.items()))
        raise DataError(f"the group {group} is in both {one} and {other}; put it into one split")
    if len(given["valid"]) == 0:
        train = given["train"]
        inner = split_groups(
            [groups[i] for i in train.tolist()],
            seed=seed,
            fractions=(1.0 - valid, valid, 0.0),
            may_be_empty=("test",),
        )
        given["train"], given["valid"] = train[inner["train"]], train[inner["valid"]]
    return given


def split_notes(classes: Sequence[str], targets: Mapping[str, np.ndarray]) -> list[str]:
    """Return what a split cannot teach or measure, by the labels of the images in each split."""
    notes = []
    for split, here in targets.items():
        if here.ndim == 1:
            measure, counts = "accuracy", {"image": np.bincount(here, minlength=len(classes))}
        else:
            positive = (here == 1).sum(axis=0)
            counts = {"positive image": positive, "negative image": len(here) - positive}
            measure = "AUC"
        effect = "it cannot be learned" if split == "train" else f"its {measure} cannot be measured"
        for what, number in counts.items():
            if lacking := [classes[at] for at in np.flatnonzero(number == 0).tolist()]:
                more = f" and {len(lacking) - 5:,} more" if len(lacking) > 5 else ""
                notes.append(
                    f"{split} has no {what} of {', '.join(lacking[:5])}{more}, so {effect};"
                    " add images, or split with another seed or other shares"
                )
    return notes
