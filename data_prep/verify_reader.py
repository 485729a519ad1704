"""Verify the images of any reader, or of a folder that was resized or packed from them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from data_prep import manifest
from data_prep.catalog import MISSING, UNCERTAIN, Catalog, split_catalog
from data_prep.errors import DataError
from data_prep.folder_state import IMAGES_FILE, exclude_images, is_packed, read_prepared
from data_prep.image_checks import ImageCheck, check_images, duplicates_to_exclude, find_duplicates
from data_prep.readers import labels_csv, load_catalog
from data_prep.verify import Report, add_problem, report_duplicates, report_image_checks


def verify_reader(
    folder: str | os.PathLike[str],
    reader: str,
    *,
    seed: int = 0,
    decode: bool = True,
    drop_duplicates: bool = False,
    num_workers: int | None = None,
    progress: bool = True,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """Check the images that `reader` reads, or a folder resized from them, as `verify_folder` does.

    Problems: images that are unreadable, changed since they were written, or not in the list;
    images of several sizes in a resized folder; a group in two parts; an image in two parts under
    different groups. Notes: images that occur more than once.

    `frequencies` has one row per class or finding: `here`, `share`, and for findings the shares
    `uncertain` and `missing`. Raises `DataError` if the reader refuses the folder.
    """
    folder = Path(folder)
    found, _ = load_catalog(reader, folder, **(options or {}))
    is_prepared, packed = labels_csv.has_labels_csv(folder), is_packed(folder)
    note = read_prepared(folder) if is_prepared else None
    if drop_duplicates and (not is_prepared or packed):
        raise DataError(
            f"{folder}: duplicates are dropped from a resized folder only; resize this one first"
        )
    rows = manifest.read_manifest(folder) if is_prepared else {}
    checks: list[ImageCheck] = []
    if decode or drop_duplicates:
        jobs = [
            (image, place, at, rows[image].sha256 if image in rows else "")
            for at, (image, place) in enumerate(zip(found.images, found.sources, strict=True))
        ]
        checks = check_images(
            jobs,
            folder / IMAGES_FILE if packed else None,
            num_workers,
            progress,
            folder=os.fspath(found.folder),
            kind=found.kind,
            channels=int((note or {}).get("channels", 1 if note else 3)),
        )
    same = find_duplicates(checks)
    groups = list(found.images if found.groups is None else found.groups)
    if drop_duplicates:
        group_of = dict(zip(found.images, groups, strict=True))
        exclude_images(folder, duplicates_to_exclude(same, group_of))
        return verify_reader(
            folder, reader, seed=seed, num_workers=num_workers, progress=progress, options=options
        )
    unit = "single images" if found.groups is None else "groups"
    report = Report(len(found), len(set(groups)), len(checks), unit)
    if note is not None:
        add_problem(report, _unnamed(folder, found), "there but not named in the list of images")
    table = pd.DataFrame({"image": list(found.images), "patient": groups})
    splits: dict[str, dict[str, pd.DataFrame]] = {}
    try:
        parts = split_catalog(found, seed=seed)
        splits[f"the split by seed {seed}"] = {part: table.iloc[at] for part, at in parts.items()}
    except DataError as error:
        report.problems.append(str(error))
    smaller = [
        image
        for image in found.images
        if not checks
        and not packed
        and image in rows
        and not manifest.file_matches(folder, rows[image], thorough=False)
    ]
    report_image_checks(checks, smaller, report, resized=note is not None)
    report_duplicates(same, table, splits, report)
    report.frequencies = frequencies(found)
    return report


def frequencies(found: Catalog) -> pd.DataFrame:
    """Count images by class or finding: `here`, `share`; for findings `uncertain`, `missing`."""
    if found.task == "classes":
        here = np.bincount(found.labels, minlength=len(found.classes))
        return pd.DataFrame({"here": here, "share": here / len(found)}, index=list(found.classes))
    here = (found.labels == 1).sum(axis=0)
    return pd.DataFrame(
        {
            "here": here,
            "share": here / len(found),
            "uncertain": (found.labels == UNCERTAIN).mean(axis=0),
            "missing": (found.labels == MISSING).mean(axis=0),
        },
        index=list(found.classes),
    )


def _unnamed(folder: Path, found: Catalog) -> list[str]:
    """Return the images of a resized folder that neither the manifest nor the list names."""
    named = {row.file for row in manifest.read_manifest(folder).values()} | set(found.sources)
    there = []
    for place, _, names in os.walk(folder / "images"):
        inside = os.path.relpath(place, folder)
        there += [os.path.join(inside, name) for name in names]  # noqa: PTH118
    return sorted(set(there) - named)
