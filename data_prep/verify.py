"""Verify a data folder: files, decoding, duplicates, leaks between splits, and label counts."""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from data_prep import manifest
from data_prep.catalog import (
    MISSING,
    UNCERTAIN,
    Catalog,
    count_labels,
    label_text,
    passed_over_text,
    split_catalog,
    split_notes,
)
from data_prep.errors import DataError, count_text, printable
from data_prep.files import map_in_processes, with_progress
from data_prep.image_decoding import ONE_LEVEL, decode, note_levels, note_texts
from data_prep.manifest import MANIFEST, Row, is_packed, open_array, read_prepared
from data_prep.prepared_folder import text_without_path
from data_prep.readers import labels_csv, load_catalog, nih
from data_prep.readers.catalog_reader import read_source
from data_prep.readers.nih import finding_counts, published_counts
from data_prep.split import SPLITS, describe_groups

BATCH = 32

#: The patient and the follow-up number in an NIH file name.
NIH_FILE_NAME = re.compile(r"(\d{8})_(\d{3})\.\w+")


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

    def add_problem(self, names: Sequence[str], what: str) -> None:
        """Add a problem of these images, unless there are none."""
        if names:
            text = f"{count_text(names, 'image is', 'images are')} {what}, the first: {names[0]}"
            self.problems.append(text)


class ImageCheck(NamedTuple):
    """The result of the check of one image; `notes` are those of `image_decoding.decode`."""

    image: str
    problem: str = ""
    """The reason why the image cannot be read, or empty."""
    changed: bool = False
    """True if the file differs from the SHA-256 in the manifest."""
    pixels: bytes = b""
    """A hash of the pixels."""
    shape: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def verify_folder(
    folder: str | os.PathLike[str],
    *,
    reader: str | None = None,
    seed: int = 0,
    decode: bool = True,
    num_workers: int | None = None,
    progress: bool = True,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """Check a data folder, published or prepared; `decode=False` skips all checks of pixels.

    A problem makes training wrong or impossible, as a patient in two splits; the rest are notes.
    """
    folder = Path(folder)
    has_csv, packed = labels_csv.has_labels_csv(folder), is_packed(folder)
    is_nih = reader == "nih" or (reader is None and not has_csv)
    if is_nih:
        found = nih.catalog(folder, check_images=False)
    else:
        found = load_catalog(reader, folder, **(options or {}))[0]
    note = read_prepared(folder) if is_nih or has_csv else None
    complete = note is None or note["complete"]
    rows = manifest.read_manifest(folder, partial=not complete) if is_nih or has_csv else {}
    there = nih.list_images(folder) if is_nih and not packed else {}
    present = found
    if is_nih and not packed:
        present = found.select(np.flatnonzero([Path(path).name in there for path in found.sources]))
    checks: list[ImageCheck] = []
    if decode:
        array = open_array(folder)[0] if packed else None
        channels = 1 if is_nih else int((note or {}).get("channels", 1 if note else 3))
        jobs = _jobs(present, array, rows)
        work = partial(_check, folder=os.fspath(found.folder), channels=channels)
        checking = map_in_processes(work, jobs, BATCH, num_workers)
        for some in with_progress(checking, "verify", len(present), progress):
            checks += some

    unit = "patients" if is_nih else "single images" if found.groups is None else "groups"
    report = Report(len(found), len({*(found.groups or found.images)}), len(checks), unit)
    if text := passed_over_text(found.passed_over):
        report.notes.append(text)
    if not complete:
        report.problems.append("not complete: run the command that wrote it again, which continues")
    missing = [*dict.fromkeys(found.images).keys() - {*present.images}]
    report.add_problem(sorted(missing), "named in the label file but not there")
    unnamed: set[str] = set()
    if is_nih:
        unnamed = there.keys() - {Path(path).name for path in found.sources}
    elif note is not None:
        files = (file for file in (folder / "images").rglob("*") if file.is_file())
        unnamed = {os.path.relpath(file, folder) for file in files}
        unnamed -= {*found.sources, *(row.file for row in rows.values())}
    report.add_problem(sorted(unnamed), "there but not named in the list of images")
    if is_nih:
        named = zip(found.images, found.groups or (), strict=True)
        wrong = [
            f"{image} (patient {patient})"
            for image, patient in named
            if (match := NIH_FILE_NAME.fullmatch(image)) and int(match[1]) != patient
        ]
        report.add_problem(wrong, "named after another patient than the label file says")
    if found.task == "classes" and len(found.classes) < 2:
        only = f"has only the class '{found.classes[0]}'"
        report.problems.append(f"{only}: give images of at least two classes")
    splits: dict[str, np.ndarray] = {}
    title = f"the split by seed {seed}"
    try:
        splits = split_catalog(found, seed=seed)
    except DataError as error:
        report.problems.append(str(error))
    else:
        groups = describe_groups(found.groups, found.sources, splits)
        (report.problems if groups.is_leak else report.notes).append(f"{title}: {groups.text}")
    changed = {check.image for check in checks if check.changed}
    if not (checks or packed):
        known = [rows[image] for image in present.images if image in rows]
        matches = partial(manifest.file_matches, folder, thorough=False)
        changed = {row.image for row in known if not matches(row)}
    bad = [f"{check.image} ({check.problem})" for check in checks if check.problem]
    report.add_problem(sorted(bad), "not readable")
    report.add_problem(sorted(changed), f"not as {MANIFEST} describes")
    _report_pixels(checks, report, resized=note is not None)
    _report_duplicates(checks, found, title, splits, report)
    labels = {split: found.labels[at] for split, at in splits.items()}
    report.notes += [f"{title}: {note}" for note in split_notes(found.classes, labels)]
    report.frequencies = _frequencies(found, splits)
    if is_nih and len(found) == published_counts()["images"]:
        for finding, count in finding_counts().items():
            if (here := report.frequencies.loc[finding, "here"]) != count:
                report.problems.append(f"{finding}: {here:,} images, the NIH publishes {count:,}")
    return report


#: An image to check: its name, its source, its pixels in an array, its hash in the manifest.
Job = tuple[str, str, np.ndarray | None, str]


def _jobs(found: Catalog, array: np.ndarray | None, rows: Mapping[str, Row]) -> Iterator[Job]:
    for at, (image, source) in enumerate(zip(found.images, found.sources, strict=True)):
        pixels = None if array is None else np.asarray(array[at])
        yield image, source, pixels, rows[image].sha256 if image in rows else ""


def _check(job: Job, *, folder: str, channels: int) -> ImageCheck:
    image, source, pixels, expected = job
    path = os.path.join(folder, source)  # noqa: PTH118 (speed)
    notes: list[str] = []
    try:
        if pixels is None:
            data = read_source(folder, source)
            pixels = decode(data, path, channels, notes)
        else:
            data = pixels.tobytes()
    except DataError as error:
        return ImageCheck(image, problem=text_without_path(error, path))
    same = hashlib.blake2b(pixels.tobytes(), digest_size=16).digest()
    changed = bool(expected) and manifest.sha256_of(data) != expected
    note_levels(pixels, notes)
    return ImageCheck(image, "", changed, same, pixels.shape, tuple(notes))


def _report_pixels(checks: list[ImageCheck], report: Report, *, resized: bool) -> None:
    noted: dict[str, list[str]] = defaultdict(list)
    sizes: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for check in checks:
        for note in check.notes:
            noted[note].append(check.image)
        if not check.problem:
            sizes[check.shape].append(check.image)
    report.notes += note_texts(noted)
    if checks and len(noted[ONE_LEVEL]) == len(checks):
        report.problems.append("every image has only one level, so nothing can be learned")
    if len(sizes) > 1:
        usual = max(sizes, key=lambda shape: len(sizes[shape]))
        odd = sorted(name for shape, names in sizes.items() if shape != usual for name in names)
        images = count_text(odd, "image is", "images are")
        text = f"{images} not of the usual {usual[1]} x {usual[0]} pixels, the first: {odd[0]}"
        (report.problems if resized else report.notes).append(text)


def _report_duplicates(
    checks: list[ImageCheck],
    found: Catalog,
    title: str,
    splits: Mapping[str, np.ndarray],
    report: Report,
) -> None:
    """Report equal pixels: a note, or a problem for different labels or two splits."""
    by_pixels: dict[bytes, list[str]] = defaultdict(list)
    for check in checks:
        if check.pixels:
            by_pixels[check.pixels].append(check.image)
    same = sorted(sorted(images) for images in by_pixels.values() if len(images) > 1)
    if not same:
        return
    place = {image: at for at, image in enumerate(found.images)}
    split_of = {at: split for split, rows in splits.items() for at in rows.tolist()}

    def differing(value: Callable[[int], Hashable]) -> tuple[str, str]:
        """Return how many images have copies with another value, and the first such pair."""
        values = [{image: value(place[image]) for image in group} for group in same]
        values = [group for group in values if len({*group.values()}) > 1]
        if not values:
            return "", ""
        (one, first), *others = values[0].items()
        other, second = next(pair for pair in others if pair[1] != first)
        pair = f"{one} ({first}) and {other} ({second})"
        return count_text(values, "image occurs", "images occur"), pair

    images = count_text(same, "image occurs", "images occur")
    report.notes.append(f"{images} more than once, the first: {' and '.join(same[0][:2])}")
    images, first = differing(lambda at: label_text(found, at))
    if images:
        report.problems.append(f"{images} with different labels, the first: {first}; keep one")
    images, first = differing(split_of.get)
    if images:
        report.problems.append(
            f"{title} leaks: {images} in two splits, the first: {first}; remove all but one from"
            " the labels"
        )
    if found.groups is not None:
        images, first = differing(found.groups.__getitem__)
        if images:
            report.notes.append(f"{images} under two {report.unit}, the first: {first}")


def _frequencies(found: Catalog, splits: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Count images by class or finding: `here`, each split, `share`; `uncertain`, `missing`."""
    here = count_labels(found, np.arange(len(found)))
    columns = {"here": here}
    columns |= {split: count_labels(found, at) for split, at in splits.items()}
    columns["share"] = here / len(found)
    if found.task == "findings":
        columns["uncertain"] = (found.labels == UNCERTAIN).mean(axis=0)
        columns["missing"] = (found.labels == MISSING).mean(axis=0)
    return pd.DataFrame(columns, index=list(found.classes))


def format_report(report: Report) -> str:
    """Return a report as text for the terminal."""
    table = report.frequencies.copy()
    for name, column in table.items():
        form = "{:,.0f}" if name in ("here", *SPLITS) else "{:.2%}"
        table[name] = [form.format(cell) for cell in column]
    lines = [
        f"{report.images:,} images of {report.patients:,} {report.unit};"
        f" {report.checked:,} decoded",
        *table.to_string().splitlines(),
        *(f"note: {note}" for note in report.notes),
        *(f"PROBLEM: {problem}" for problem in report.problems),
        "no problems" if report.ok else f"{len(report.problems)} problems",
    ]
    return "\n".join(map(printable, lines))
