"""Verify a data folder: files, decoding, duplicates, leaks between parts, and label counts."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from data_prep import manifest
from data_prep.catalog import (
    MISSING,
    UNCERTAIN,
    Catalog,
    part_notes,
    passed_over_text,
    split_catalog,
)
from data_prep.errors import DataError, count_text, printable
from data_prep.folder_state import (
    exclude_images,
    is_packed,
    open_array,
    read_excluded,
    read_prepared,
)
from data_prep.groups import describe_groups
from data_prep.image_checks import ImageCheck, check_images, duplicates_to_exclude, find_duplicates
from data_prep.image_decoding import ONE_LEVEL, note_texts
from data_prep.manifest import MANIFEST, Row
from data_prep.readers import labels_csv, load_catalog, nih
from data_prep.readers.nih_labels import finding_counts, published_counts

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


#: The indices of the images of each part, by title of the split and name of the part.
Splits = dict[str, dict[str, np.ndarray]]


def verify_folder(
    folder: str | os.PathLike[str],
    *,
    reader: str = "nih",
    seed: int = 0,
    decode: bool = True,
    drop_duplicates: bool = False,
    num_workers: int | None = None,
    progress: bool = True,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """Check a data folder, published or prepared.

    Problems are images that are missing, unreadable, changed or not in the label file, duplicates
    in two parts of the split or with different labels, a patient in two parts, and a single class.
    Notes are other duplicates, what reading the images lost, classes or findings that a part
    lacks, and findings that are much more or less frequent than in the NIH's data set.

    Args:
        folder: the data folder.
        reader: its format, as in `open_reader`.
        seed: of the split to check.
        decode: decode every image; False skips all checks of pixels.
        drop_duplicates: exclude images that occur again under another patient, by a list in the
            folder's `left_out.csv`.
        num_workers: number of processes (default: one per CPU core).
        progress: show a progress bar.
        options: options of the reader, as in `open_reader`.

    Returns:
        A report with `ok`, `problems` and `notes` (texts), `images`, `patients` and `checked`
        (numbers), and `frequencies`, a table with one row per class or finding.

    Raises:
        DataError: the folder cannot be read in this format.
    """
    folder = Path(folder)
    is_nih, packed = reader == "nih", is_packed(folder)
    written = is_nih or labels_csv.has_labels_csv(folder)
    if drop_duplicates and is_nih and packed:
        raise DataError(
            f"{folder} is packed: drop duplicates from the folder of image files, and pack it again"
        )
    found = _catalog(folder, reader, options)
    if drop_duplicates and (packed or not written):
        raise DataError(
            f"{folder}: duplicates are dropped from a resized folder only; resize this one first"
        )
    note = read_prepared(folder) if written else None
    complete = note is None or note["complete"]
    rows = manifest.read_manifest(folder, partial=not complete) if written else {}
    present = found if packed or not is_nih else found.select(_present(found))
    kept = set(present.images)
    missing = [image for image in found.images if image not in kept]
    checks: list[ImageCheck] = []
    if decode or drop_duplicates:
        array = open_array(folder)[0] if packed else None
        channels = 1 if is_nih else int((note or {}).get("channels", 1 if note else 3))
        checks = check_images(present, array, rows, channels, num_workers, progress)
    same = find_duplicates(checks)
    if drop_duplicates:
        exclude_images(folder, duplicates_to_exclude(same, _groups(found), _labels(found)))
        found = _catalog(folder, reader, options)
        kept = set(found.images)
        same = [images for group in same if len(images := [*filter(kept.__contains__, group)]) > 1]

    unit = "patients" if is_nih else "single images" if found.groups is None else "groups"
    report = Report(len(found), len(set(_groups(found).values())), len(checks), unit)
    if text := passed_over_text(found.passed_over):
        report.notes.append(text)
    if not complete:
        report.problems.append("not complete: run the command that wrote it again, which continues")
    if is_nih:
        _add_problem(report, missing, "named in the label file but not there")
        if not packed:
            unnamed = _unnamed_by_nih(folder, found)
            _add_problem(report, unnamed, "there but not named in the label file")
        _check_names(found, report)
    elif note is not None:
        unnamed = _unnamed(folder, found, rows)
        _add_problem(report, unnamed, "there but not named in the list of images")
    if found.task == "classes" and len(found.classes) < 2:
        report.problems.append(
            f"has only the class '{found.classes[0]}': give images of at least two classes"
        )
    splits = _splits(folder, found, seed, report, is_nih)
    _report_groups(found, splits, report)
    wrong = [] if checks else wrong_sizes(folder, present.images, rows)
    _report_images(checks, wrong, report, resized=note is not None)
    _report_duplicates(same, found, splits, report)
    for title, split in splits.items():
        labels = {part: found.labels[rows] for part, rows in split.items()}
        report.notes += [f"{title}: {note}" for note in part_notes(found.classes, labels)]
    report.frequencies = nih_frequencies(found) if is_nih else frequencies(found)
    if is_nih:
        _check_frequencies(report)
    return report


def wrong_sizes(
    folder: Path, images: Iterable[str], rows: Mapping[str, Row] | None = None
) -> list[str]:
    """Return the images whose file size differs from the folder's manifest, if there is one."""
    if is_packed(folder):  # the size of the array was checked when it was opened
        return []
    known = manifest.read_manifest(folder, partial=True) if rows is None else rows
    return [
        image
        for image in images
        if image in known and not manifest.file_matches(folder, known[image], thorough=False)
    ]


def nih_frequencies(found: Catalog) -> pd.DataFrame:
    """Compare the findings with the NIH's published counts: `here`, `share`, `nih`, `nih_share`."""
    table = frequencies(found)[["here", "share"]]
    table["nih"] = pd.Series(finding_counts())
    table["nih_share"] = table["nih"] / published_counts()["images"]
    return table


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


def _catalog(folder: Path, reader: str, options: Mapping[str, Any] | None) -> Catalog:
    if reader == "nih":
        return nih.catalog(folder, check_images=False)
    return load_catalog(reader, folder, **(options or {}))[0]


def _groups(found: Catalog) -> dict[str, Hashable]:
    return dict(zip(found.images, found.groups or found.images, strict=True))


def _labels(found: Catalog) -> dict[str, str]:
    """Return the class, or the findings, of each image as a text."""
    if found.task == "classes":
        texts = [found.classes[label] for label in found.labels.tolist()]
    else:
        names = np.array(found.classes, dtype=object)
        texts = [" and ".join(names[row == 1]) or "no finding" for row in found.labels]
    return dict(zip(found.images, texts, strict=True))


def _report_groups(found: Catalog, splits: Splits, report: Report) -> None:
    for title, split in splits.items():
        groups = describe_groups(found.groups, found.sources, split)
        (report.problems if groups.is_leak else report.notes).append(f"{title}: {groups.text}")


def _add_problem(report: Report, names: Sequence[str], what: str) -> None:
    if names:
        report.problems.append(
            f"{count_text(names, 'image is', 'images are')} {what}, the first: {names[0]}"
        )


def _present(found: Catalog) -> np.ndarray:
    there = nih.list_images(found.folder)
    return np.flatnonzero([Path(path).name in there for path in found.sources])


def _unnamed_by_nih(folder: Path, found: Catalog) -> list[str]:
    known = {Path(path).name for path in found.sources}
    out = {Path(image).stem for image in read_excluded(folder)}
    there = nih.list_images(folder)
    return sorted(name for name in there if name not in known and Path(name).stem not in out)


def _unnamed(folder: Path, found: Catalog, rows: Mapping[str, Row]) -> list[str]:
    named = {row.file for row in rows.values()} | set(found.sources)
    there = []
    for place, _, names in os.walk(folder / "images"):
        inside = os.path.relpath(place, folder)
        there += [os.path.join(inside, name) for name in names]  # noqa: PTH118
    return sorted(set(there) - named)


def _check_names(found: Catalog, report: Report) -> None:
    wrong = [
        f"{image} (patient {patient})"
        for image, patient in _groups(found).items()
        if (match := NIH_FILE_NAME.fullmatch(image)) and int(match[1]) != patient
    ]
    _add_problem(report, wrong, "named after another patient than the label file says")


def _splits(folder: Path, found: Catalog, seed: int, report: Report, is_nih: bool) -> Splits:
    """Return the splits by title; report what makes one impossible."""
    title = f"the split by seed {seed}"
    try:
        splits = {title: split_catalog(found, seed=seed)}
        if is_nih and (folder / nih.TEST_FILE).exists():
            splits["the NIH's lists"] = nih.official_parts(found)
    except DataError as error:
        report.problems.append(str(error))
        return {}
    return splits


def _report_images(
    checks: list[ImageCheck], wrong_size: list[str], report: Report, *, resized: bool
) -> None:
    bad = [f"{check.image} ({check.problem})" for check in checks if check.problem]
    _add_problem(report, sorted(bad), "not readable")
    changed = sorted({check.image for check in checks if check.changed} | set(wrong_size))
    _add_problem(report, changed, f"not as {MANIFEST} describes")
    noted: dict[str, list[str]] = defaultdict(list)
    for check in checks:
        for note in check.notes:
            noted[note].append(check.image)
    report.notes += note_texts(noted)
    if checks and len(noted[ONE_LEVEL]) == len(checks):
        report.problems.append("every image has only one level, so nothing can be learned")
    sizes: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for check in checks:
        if not check.problem:
            sizes[check.shape].append(check.image)
    if len(sizes) > 1:
        usual = max(sizes, key=lambda shape: len(sizes[shape]))
        odd = sorted(name for shape, names in sizes.items() if shape != usual for name in names)
        text = f"not of the usual {usual[1]} x {usual[0]} pixels"
        if resized:
            _add_problem(report, odd, text)
        else:
            report.notes.append(
                f"{count_text(odd, 'image is', 'images are')} {text}, the first: {odd[0]}"
            )


def _report_duplicates(
    same: list[list[str]], found: Catalog, splits: Splits, report: Report
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
    labels = _labels(found)
    if contradicting := [group for group in same if len({labels[image] for image in group}) > 1]:
        one, *others = contradicting[0]
        other = next(image for image in others if labels[image] != labels[one])
        report.problems.append(
            f"{count_text(contradicting, 'image occurs', 'images occur')} with different labels,"
            f" the first: {one} ({labels[one]}) and {other} ({labels[other]}); keep the right one"
        )
    way_out = "'data-prep verify --drop-duplicates' keeps one copy where the labels are equal"
    for title, split in splits.items():
        part_of = {found.images[at]: part for part, rows in split.items() for at in rows.tolist()}
        leaks = [group for group in same if len({part_of[image] for image in group}) > 1]
        if leaks:
            one, *others = leaks[0]
            other = next(image for image in others if part_of[image] != part_of[one])
            first = f"{one} ({part_of[one]}) and {other} ({part_of[other]})"
            report.problems.append(
                f"{title} leaks: {count_text(leaks, 'image is', 'images are')} in two parts, under"
                f" two {report.unit}, the first: {first}; {way_out}"
            )
    patient = _groups(found)
    if shared := [group for group in same if len({patient[image] for image in group}) > 1]:
        first = " and ".join(shared[0][:2])
        report.notes.append(
            f"{count_text(shared, 'image occurs', 'images occur')} under two {report.unit}, the"
            f" first: {first}; {way_out}, so that no split leaks"
        )


def _check_frequencies(report: Report) -> None:
    whole = report.images == published_counts()["images"]
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
