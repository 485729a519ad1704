"""Verify a data folder: files, decoding, duplicates, leaks between parts, and label counts."""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from tqdm import tqdm

from data_prep import manifest
from data_prep.catalog import (
    MISSING,
    UNCERTAIN,
    Catalog,
    count_labels,
    part_notes,
    passed_over_text,
    split_catalog,
)
from data_prep.errors import DataError, count_text, printable
from data_prep.files import map_in_processes
from data_prep.folder_state import is_packed, open_array, read_prepared
from data_prep.image_decoding import ONE_LEVEL, note_levels, note_texts
from data_prep.manifest import MANIFEST, Row
from data_prep.prepared_folder import text_without_path
from data_prep.readers import catalog_reader as sources
from data_prep.readers import labels_csv, load_catalog, nih
from data_prep.readers.nih_labels import finding_counts, published_counts
from data_prep.split import PARTS, describe_groups

BATCH = 32

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

    def add_problem(self, names: Sequence[str], what: str) -> None:
        """Add a problem of these images, unless there are none."""
        if names:
            text = f"{count_text(names, 'image is', 'images are')} {what}, the first: {names[0]}"
            self.problems.append(text)


class ImageCheck(NamedTuple):
    """The result of the check of one image."""

    image: str
    problem: str = ""
    """The reason why the image cannot be read, or empty."""
    changed: bool = False
    """True if the file differs from the SHA-256 in the manifest."""
    pixels: bytes = b""
    """A hash of the pixels."""
    shape: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    """What reading it lost or changed; see `image_decoding.decode`."""


#: The indices of the images of each part, by title of the split and name of the part.
Splits = dict[str, dict[str, np.ndarray]]


def verify_folder(
    folder: str | os.PathLike[str],
    *,
    reader: str = "nih",
    seed: int = 0,
    decode: bool = True,
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
    if is_nih:
        found = nih.catalog(folder, check_images=False)
    else:
        found = load_catalog(reader, folder, **(options or {}))[0]
    written = is_nih or labels_csv.has_labels_csv(folder)
    note = read_prepared(folder) if written else None
    complete = note is None or note["complete"]
    rows = manifest.read_manifest(folder, partial=not complete) if written else {}
    there = nih.list_images(folder) if is_nih and not packed else {}
    present = found
    if is_nih and not packed:
        present = found.select(np.flatnonzero([Path(path).name in there for path in found.sources]))
    checks: list[ImageCheck] = []
    if decode:
        array = open_array(folder)[0] if packed else None
        channels = 1 if is_nih else int((note or {}).get("channels", 1 if note else 3))
        checks = _check_images(present, array, rows, channels, num_workers, progress)

    unit = "patients" if is_nih else "single images" if found.groups is None else "groups"
    report = Report(len(found), len({*(found.groups or found.images)}), len(checks), unit)
    if text := passed_over_text(found.passed_over):
        report.notes.append(text)
    if not complete:
        report.problems.append("not complete: run the command that wrote it again, which continues")
    kept = {*present.images}
    missing = [image for image in found.images if image not in kept]
    report.add_problem(missing, "named in the label file but not there")
    unnamed: set[str] = set()
    if is_nih:
        unnamed = there.keys() - {Path(path).name for path in found.sources}
    elif note is not None:
        unnamed = _files_below(folder, "images") - {row.file for row in rows.values()}
        unnamed -= {*found.sources}
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
        report.problems.append(
            f"has only the class '{found.classes[0]}': give images of at least two classes"
        )
    splits = _splits(folder, found, seed, report, is_nih)
    for title, split in splits.items():
        groups = describe_groups(found.groups, found.sources, split)
        (report.problems if groups.is_leak else report.notes).append(f"{title}: {groups.text}")
    wrong = [] if checks or packed else wrong_sizes(folder, present.images, rows)
    _report_images(checks, wrong, report, resized=note is not None)
    _report_duplicates(checks, found, splits, report)
    for title, split in splits.items():
        labels = {part: found.labels[rows] for part, rows in split.items()}
        report.notes += [f"{title}: {note}" for note in part_notes(found.classes, labels)]
    report.frequencies = _frequencies(found, next(iter(splits.values()), {}))
    if is_nih:
        _compare_with_nih(report)
    return report


def wrong_sizes(folder: Path, images: Iterable[str], rows: Mapping[str, Row]) -> list[str]:
    """Return the images whose file size differs from the folder's manifest."""
    known = [rows[image] for image in images if image in rows]
    return [row.image for row in known if not manifest.file_matches(folder, row, thorough=False)]


def _files_below(folder: Path, inner: str) -> set[str]:
    """Return the paths within a folder of all files below the inner folder."""
    return {
        os.path.relpath(os.path.join(place, name), folder)  # noqa: PTH118
        for place, _, names in os.walk(folder / inner)
        for name in names
    }


def _check_images(
    found: Catalog,
    array: np.ndarray | None,
    rows: Mapping[str, Row],
    channels: int,
    num_workers: int | None,
    progress: bool,
) -> list[ImageCheck]:
    """Decode every image, or read its pixels in `array`; `rows` is the folder's manifest."""
    jobs: Iterator[tuple[str, str, np.ndarray | None, str]] = (
        (
            image,
            source,
            None if array is None else np.asarray(array[at]),
            rows[image].sha256 if image in rows else "",
        )
        for at, (image, source) in enumerate(zip(found.images, found.sources, strict=True))
    )
    checks: list[ImageCheck] = []
    work = partial(_check, folder=os.fspath(found.folder), kind=found.kind, channels=channels)
    with tqdm(total=len(found), desc="verify", unit=" images", disable=not progress or None) as bar:
        for some in map_in_processes(work, jobs, BATCH, num_workers):
            checks += some
            bar.update(len(some))
    return checks


def _check(
    job: tuple[str, str, np.ndarray | None, str], *, folder: str, kind: str, channels: int
) -> ImageCheck:
    image, source, pixels, expected = job
    path = os.path.join(folder, source)  # noqa: PTH118 (speed)
    notes: list[str] = []
    try:
        if pixels is None:
            data = sources.read_source(folder, kind, source)
            pixels = sources.decode_source(data, kind, path, channels, notes)
        else:
            data = pixels.tobytes()
    except DataError as error:
        return ImageCheck(image, problem=text_without_path(error, path))
    same = hashlib.blake2b(pixels.tobytes(), digest_size=16).digest()
    changed = bool(expected) and manifest.sha256_of(data) != expected
    note_levels(pixels, notes)
    return ImageCheck(image, "", changed, same, pixels.shape, tuple(notes))


def _splits(folder: Path, found: Catalog, seed: int, report: Report, is_nih: bool) -> Splits:
    """Return the splits by title; report what makes one impossible."""
    try:
        splits = {f"the split by seed {seed}": split_catalog(found, seed=seed)}
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
    report.add_problem(sorted(bad), "not readable")
    changed = sorted({check.image for check in checks if check.changed} | set(wrong_size))
    report.add_problem(changed, f"not as {MANIFEST} describes")
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
    checks: Iterable[ImageCheck], found: Catalog, splits: Splits, report: Report
) -> None:
    """Report equal pixels: a note, or a problem for different labels or two parts of a split."""
    by_pixels: dict[bytes, list[str]] = defaultdict(list)
    for check in checks:
        if check.pixels:
            by_pixels[check.pixels].append(check.image)
    same = sorted(sorted(images) for images in by_pixels.values() if len(images) > 1)
    if not same:
        return
    place = {image: at for at, image in enumerate(found.images)}

    def differing(value: Callable[[str], Hashable]) -> tuple[str, str]:
        """Return how many images have copies with another value, and the first such pair."""
        groups = [group for group in same if len({value(image) for image in group}) > 1]
        if not groups:
            return "", ""
        one = groups[0][0]
        other = next(image for image in groups[0] if value(image) != value(one))
        pair = f"{one} ({value(one)}) and {other} ({value(other)})"
        return count_text(groups, "image occurs", "images occur"), pair

    images = count_text(same, "image occurs", "images occur")
    report.notes.append(f"{images} more than once, the first: {' and '.join(same[0][:2])}")
    images, first = differing(lambda image: _label(found, place[image]))
    if images:
        report.problems.append(f"{images} with different labels, the first: {first}; keep one")
    for title, split in splits.items():
        part_of = {at: part for part, rows in split.items() for at in rows.tolist()}
        images, first = differing(lambda image, of=part_of: of[place[image]])  # type: ignore[misc]
        if images:
            report.problems.append(
                f"{title} leaks: {images} in two parts, the first: {first}; remove all but one"
                " from the labels"
            )
    groups = found.groups or found.images
    images, first = differing(lambda image: groups[place[image]])
    if images and found.groups is not None:
        report.notes.append(f"{images} under two {report.unit}, the first: {first}")


def _label(found: Catalog, at: int) -> str:
    """Return the class, or the findings, of an image as a text."""
    if found.task == "classes":
        return found.classes[found.labels[at]]
    names = [name for name, code in zip(found.classes, found.labels[at], strict=True) if code == 1]
    return " and ".join(names) or "no finding"


def _frequencies(found: Catalog, parts: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Count images by class or finding: `here`, each part, `share`; `uncertain`, `missing`."""
    here = count_labels(found, np.arange(len(found)))
    columns = {"here": here}
    columns |= {part: count_labels(found, at) for part, at in parts.items()}
    columns["share"] = here / len(found)
    if found.task == "findings":
        columns["uncertain"] = (found.labels == UNCERTAIN).mean(axis=0)
        columns["missing"] = (found.labels == MISSING).mean(axis=0)
    return pd.DataFrame(columns, index=list(found.classes))


def _compare_with_nih(report: Report) -> None:
    """Add `nih_share` to the table, and what differs much from the NIH's published counts."""
    published = published_counts()["images"]
    table = report.frequencies.drop(columns=["uncertain", "missing"])
    counts = pd.Series(finding_counts())
    report.frequencies = table.assign(nih_share=counts / published)
    for finding, row in report.frequencies.iterrows():
        expected = row["nih_share"] * report.images
        spread = (expected * (1 - row["nih_share"])) ** 0.5
        if report.images == published and row["here"] != counts[finding]:
            report.problems.append(
                f"{finding}: {row['here']:,.0f} images, the NIH publishes {counts[finding]:,}"
            )
        elif (
            report.images != published and abs(row["here"] - expected) > MAX_DEVIATIONS * spread + 1
        ):
            report.notes.append(
                f"{finding}: {row['share']:.1%} of the images, of the NIH's {row['nih_share']:.1%}"
            )


def format_report(report: Report) -> str:
    """Return a report as text for the terminal."""
    table = report.frequencies.rename(columns={"nih_share": "NIH"})
    for name, column in table.items():
        form = "{:,.0f}" if name in ("here", *PARTS) else "{:.2%}"
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
