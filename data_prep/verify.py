"""Verify a data folder: files, decoding, duplicates, leaks between parts, and label counts."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from data_prep import manifest, nih_counts
from data_prep.errors import DataError, printable
from data_prep.folder_state import (
    IMAGES_FILE,
    exclude_images,
    is_packed,
    read_excluded,
    read_prepared,
)
from data_prep.image_checks import ImageCheck, check_images, duplicates_to_exclude, find_duplicates
from data_prep.manifest import MANIFEST
from data_prep.nih_official_split import TEST_FILE, TRAIN_VALID_FILE, official_split
from data_prep.prepared_folder import count_text
from data_prep.readers.nih import list_images, open_packed, read_catalog
from data_prep.readers.nih_labels import FINDINGS
from data_prep.split import split_by_patient

#: The patient and the follow-up number in an NIH file name.
NIH_FILE_NAME = re.compile(r"(\d{8})_(\d{3})\.\w+")

#: A share of images that differs from the NIH's by more standard deviations is noted.
MAX_DEVIATIONS = 5.0


@dataclass
class Report:
    """The result of `verify_folder`. A problem needs a fix; a note is only information."""

    images: int
    patients: int
    checked: int
    unit: str = "patients"
    """The name of the groups of images."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    frequencies: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def ok(self) -> bool:
        """Return whether there is no problem."""
        return not self.problems


def verify_folder(
    folder: str | os.PathLike[str],
    *,
    seed: int = 0,
    decode: bool = True,
    drop_duplicates: bool = False,
    num_workers: int | None = None,
    progress: bool = True,
) -> Report:
    """Check a data folder: files against label file both ways, decoding, duplicates, leakage.

    Problems: images that are missing, not named in the label file, unreadable, or changed since
    they were written; images of several sizes in a resized folder; an incomplete folder; a patient
    in two parts of the split by `seed` or by the NIH's lists in the folder; an image in two parts
    under different patients; a file name with another patient than the label file. Notes: images
    with the same pixels (the NIH's set has some), findings whose share is far from the NIH's.
    Packed folders are checked in the same way.

    With `drop_duplicates` an image that occurs under several patients is kept under the first one;
    the copies are listed in the folder's `left_out.csv`, which `read_catalog` respects.

    `frequencies` has one row per finding: `here`, `share`, `nih`, `nih_share`. `decode=False` skips
    all checks of pixels. Raises `DataError` if the label file is invalid.
    """
    folder = Path(folder)
    packed = is_packed(folder)
    if drop_duplicates and packed:
        raise DataError(
            f"{folder} is packed: drop duplicates from the folder of image files, and pack it again"
        )
    catalog = read_labels(folder)
    note = read_prepared(folder)
    complete = note is None or note["complete"]
    rows = manifest.read_manifest(folder, partial=not complete)
    missing = [] if packed else _missing(folder, catalog)
    present = catalog[~catalog["image"].isin(missing)]
    checks: list[ImageCheck] = []
    if decode or drop_duplicates:
        jobs = [
            (image, path, place, rows[image].sha256 if image in rows else "")
            for place, image, path in present[["image", "path"]].itertuples()
        ]
        checks = check_images(jobs, folder / IMAGES_FILE if packed else None, num_workers, progress)
    same = find_duplicates(checks)
    if drop_duplicates:
        exclude_images(folder, duplicates_to_exclude(same, _by_image(catalog, "patient")))
        catalog = read_labels(folder)
        kept = set(catalog["image"])
        same = [images for group in same if len(images := [*filter(kept.__contains__, group)]) > 1]

    report = Report(len(catalog), int(catalog["patient"].nunique()), len(checks))
    if not complete:
        report.problems.append("not complete: run the command that wrote it again, which continues")
    add_problem(report, missing, "named in the label file but not there")
    if not packed:
        add_problem(report, _unnamed(folder, catalog), "there but not named in the label file")
    _check_names(catalog, report)
    splits = _check_splits(folder, catalog, seed, report)
    smaller = [] if checks else wrong_sizes(folder, present)
    report_image_checks(checks, smaller, report, resized=note is not None)
    report_duplicates(same, catalog, splits, report)
    report.frequencies = frequencies(catalog)
    _check_frequencies(report)
    return report


def read_labels(folder: Path) -> pd.DataFrame:
    """Return the catalog of a data folder, packed or not, without a check of the images."""
    return open_packed(folder)[1] if is_packed(folder) else read_catalog(folder, check_images=False)


def wrong_sizes(folder: Path, catalog: pd.DataFrame) -> list[str]:
    """Return the images whose file size differs from the folder's manifest, if there is one.

    For a packed folder the result is empty, because `open_packed` checks the size.
    """
    if is_packed(folder):
        return []
    rows = manifest.read_manifest(folder, partial=True)
    return [
        image
        for image in catalog["image"]
        if image in rows and not manifest.file_matches(folder, rows[image], thorough=False)
    ]


def frequencies(catalog: pd.DataFrame) -> pd.DataFrame:
    """Compare the findings with the NIH's published counts: `here`, `share`, `nih`, `nih_share`."""
    published, of = nih_counts.finding_counts(), nih_counts.published_counts()["images"]
    here = {finding: int(catalog[finding].sum()) for finding in FINDINGS}
    return pd.DataFrame(
        {
            "here": here,
            "share": {finding: count / len(catalog) for finding, count in here.items()},
            "nih": published,
            "nih_share": {finding: count / of for finding, count in published.items()},
        }
    )


def add_problem(report: Report, names: Sequence[str], what: str) -> None:
    if names:
        report.problems.append(
            f"{count_text(names, 'image is', 'images are')} {what}, the first: {names[0]}"
        )


def _missing(folder: Path, catalog: pd.DataFrame) -> list[str]:
    there = list_images(folder)
    present = catalog["path"].map(lambda path: Path(path).name in there)
    return catalog["image"][~present].tolist()


def _unnamed(folder: Path, catalog: pd.DataFrame) -> list[str]:
    known = {Path(path).name for path in catalog["path"]}
    out = {Path(image).stem for image in read_excluded(folder)}
    return sorted(
        name for name in list_images(folder) if name not in known and Path(name).stem not in out
    )


def _by_image(catalog: pd.DataFrame, column: str) -> dict[str, int]:
    return dict(zip(catalog["image"], catalog[column], strict=True))


def _check_names(catalog: pd.DataFrame, report: Report) -> None:
    wrong = [
        f"{image} (patient {patient})"
        for image, patient in zip(catalog["image"], catalog["patient"], strict=True)
        if (match := NIH_FILE_NAME.fullmatch(image)) and int(match[1]) != patient
    ]
    add_problem(report, wrong, "named after another patient than the label file says")


def _check_splits(
    folder: Path, catalog: pd.DataFrame, seed: int, report: Report
) -> dict[str, dict[str, pd.DataFrame]]:
    """Return the splits by title; report each patient in two parts of a split."""
    try:
        splits = {f"the split by seed {seed}": split_by_patient(catalog, seed=seed)}
        if (folder / TEST_FILE).exists():
            lists = folder / TRAIN_VALID_FILE, folder / TEST_FILE
            splits["the NIH's lists"] = official_split(catalog, *lists)
    except DataError as error:
        report.problems.append(str(error))
        return {}
    for title, split in splits.items():
        seen: dict[int, str] = {}
        for part, rows in split.items():
            for patient in rows["patient"].unique():
                if seen.setdefault(patient, part) != part:
                    report.problems.append(f"{title}: patient {patient} is in two parts")
    return splits


def report_image_checks(
    checks: list[ImageCheck], wrong_size: list[str], report: Report, *, resized: bool
) -> None:
    bad = [f"{check.image} ({check.problem})" for check in checks if check.problem]
    add_problem(report, sorted(bad), "not readable")
    changed = sorted({check.image for check in checks if check.changed} | set(wrong_size))
    add_problem(report, changed, f"not what {MANIFEST} says was written")
    sizes: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for check in checks:
        if not check.problem:
            sizes[check.shape].append(check.image)
    if len(sizes) > 1:
        usual = max(sizes, key=lambda shape: len(sizes[shape]))
        odd = sorted(name for shape, names in sizes.items() if shape != usual for name in names)
        text = f"not of the usual {usual[1]} x {usual[0]} pixels"
        if resized:
            add_problem(report, odd, text)
        else:
            report.notes.append(
                f"{count_text(odd, 'image is', 'images are')} {text}, the first: {odd[0]}"
            )


def report_duplicates(
    same: list[list[str]],
    catalog: pd.DataFrame,
    splits: dict[str, dict[str, pd.DataFrame]],
    report: Report,
) -> None:
    """Report duplicates: a note, or a problem if the copies are in two parts of a split.

    Parts do not share patients, so such copies are under two patients.
    """
    if not same:
        return
    first = " and ".join(same[0][:2])
    report.notes.append(
        f"{count_text(same, 'image occurs', 'images occur')} more than once, the first: {first}"
    )
    way_out = "'data-prep verify --drop-duplicates' keeps one copy and excludes the others"
    for title, split in splits.items():
        part_of = {image: part for part, rows in split.items() for image in rows["image"]}
        leaks = [group for group in same if len({part_of[image] for image in group}) > 1]
        if leaks:
            one, *others = leaks[0]
            other = next(image for image in others if part_of[image] != part_of[one])
            first = f"{one} ({part_of[one]}) and {other} ({part_of[other]})"
            report.problems.append(
                f"{title} leaks: {count_text(leaks, 'image is', 'images are')} in two parts, under"
                f" two {report.unit}, the first: {first}; {way_out}"
            )
    patient = _by_image(catalog, "patient")
    if shared := [group for group in same if len({patient[image] for image in group}) > 1]:
        first = " and ".join(shared[0][:2])
        report.notes.append(
            f"{count_text(shared, 'image occurs', 'images occur')} under two {report.unit}, the"
            f" first: {first}; {way_out}, so that no split leaks"
        )


def _check_frequencies(report: Report) -> None:
    whole = report.images == nih_counts.published_counts()["images"]
    for finding, row in report.frequencies.iterrows():
        expected = row["nih_share"] * report.images
        spread = (expected * (1 - row["nih_share"])) ** 0.5
        if whole and row["here"] != row["nih"]:
            report.problems.append(
                f"{finding}: {row['here']:,.0f} images, the NIH publishes {row['nih']:,.0f}"
            )
        elif not whole and abs(row["here"] - expected) > MAX_DEVIATIONS * spread + 1:
            report.notes.append(
                f"{finding}: {row['share']:.1%} of the images, of the NIH's {row['nih_share']:.1%}"
            )


def format_report(report: Report) -> str:
    """Return a report as text for the terminal."""
    table = report.frequencies
    others = [name for name in table.columns if name not in ("here", "share", "nih")]
    titles = ["here", "share", *("NIH" if name == "nih_share" else name for name in others)]
    lines = [
        f"{report.images:,} images of {report.patients:,} {report.unit};"
        f" {report.checked:,} decoded",
        f"{'':20}" + "".join(f"{title:>11}" for title in titles),
    ]
    for name, row in table.iterrows():
        cells = [f"{row['here']:,.0f}", *(f"{row[column]:.2%}" for column in ("share", *others))]
        lines.append(f"{name!s:20}" + "".join(f"{cell:>11}" for cell in cells))
    lines += [f"note: {note}" for note in report.notes]
    lines += [f"PROBLEM: {problem}" for problem in report.problems]
    lines.append("no problems" if report.ok else f"{len(report.problems)} problems")
    return "\n".join(map(printable, lines))
