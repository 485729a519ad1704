"""Is a data folder what it says it is?"""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from data_prep import nih
from data_prep.catalog import FINDINGS, list_images, read_catalog
from data_prep.errors import DataError
from data_prep.files import on_all_cores
from data_prep.images import read_grey
from data_prep.lists import TEST_LIST, TRAIN_VALID_LIST, split_by_lists
from data_prep.prepared import reason_only
from data_prep.split import split_by_patient

BATCH = 32

#: How an NIH file name tells patient and follow-up.
NAME = re.compile(r"(\d{8})_(\d{3})\.\w+")

#: A share of images further from the NIH's than this many standard deviations is pointed out.
FAR = 5.0


@dataclass
class Report:
    """What `verify_folder` found. A problem is something to put right; a note is worth knowing."""

    images: int
    patients: int
    checked: int
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    frequencies: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def fine(self) -> bool:
        """Whether there was no problem."""
        return not self.problems


def verify_folder(
    folder: str | os.PathLike[str],
    *,
    seed: int = 0,
    decode: bool = True,
    workers: int | None = None,
    progress: bool = True,
) -> Report:
    """Check a data folder: files against label file both ways, decoding, duplicates, leakage.

    Problems: images that are named but not there or there but not named, that cannot be read, that
    are not all of one size in a resized folder; a patient in two parts of the split by `seed` or of
    the NIH's lists where those lie in the folder; a file name that gives another patient than the
    label file. Notes: images with the same pixels (the NIH's set has some), findings whose share is
    far from the NIH's.

    `frequencies` has a row a finding: `here`, `share`, `nih`, `nih_share`. `decode=False` skips
    whatever needs the pixels. Raises `DataError` where the label file itself is wrong.
    """
    folder = Path(folder)
    catalog = read_catalog(folder, check_images=False)
    report = Report(len(catalog), int(catalog["patient"].nunique()), 0)
    there = list_images(folder)
    present = catalog["path"].map(lambda path: Path(path).name in there)
    missing = catalog["image"][~present].tolist()
    _add(report, missing, "named in the label file but not there")
    extra = sorted(set(there) - {Path(path).name for path in catalog["path"]})
    _add(report, extra, "there but not named in the label file")
    _check_names(catalog, report)
    _check_splits(folder, catalog, seed, report)
    if decode:
        _check_pixels(catalog["path"][present].tolist(), report, workers, progress)
    report.frequencies = frequencies(catalog)
    _check_frequencies(report)
    return report


def frequencies(catalog: pd.DataFrame) -> pd.DataFrame:
    """Findings against the NIH's published counts: `here`, `share`, `nih`, `nih_share`."""
    published, of = nih.finding_counts(), nih.published()["images"]
    here = {finding: int(catalog[finding].sum()) for finding in FINDINGS}
    return pd.DataFrame(
        {
            "here": here,
            "share": {finding: count / len(catalog) for finding, count in here.items()},
            "nih": published,
            "nih_share": {finding: count / of for finding, count in published.items()},
        }
    )


def _add(report: Report, names: Sequence[str], what: str) -> None:
    if names:
        verb = "image is" if len(names) == 1 else "images are"
        report.problems.append(f"{len(names):,} {verb} {what}, the first: {names[0]}")


def _check_names(catalog: pd.DataFrame, report: Report) -> None:
    wrong = [
        f"{image} (patient {patient})"
        for image, patient in zip(catalog["image"], catalog["patient"], strict=True)
        if (told := NAME.fullmatch(image)) and int(told[1]) != patient
    ]
    _add(report, wrong, "named after another patient than the label file says")


def _check_splits(folder: Path, catalog: pd.DataFrame, seed: int, report: Report) -> None:
    try:
        splits = {f"the split by seed {seed}": split_by_patient(catalog, seed=seed)}
        if (folder / TEST_LIST).exists():
            lists = folder / TRAIN_VALID_LIST, folder / TEST_LIST
            splits["the NIH's lists"] = split_by_lists(catalog, *lists)
    except DataError as error:
        report.problems.append(str(error))
        return
    for title, split in splits.items():
        seen: dict[int, str] = {}
        for part, rows in split.items():
            for patient in rows["patient"].unique():
                if seen.setdefault(patient, part) != part:
                    report.problems.append(f"{title}: patient {patient} is in two parts")


def _check_pixels(paths: list[str], report: Report, workers: int | None, progress: bool) -> None:
    same: dict[bytes, list[str]] = defaultdict(list)
    sizes: dict[tuple[int, int], list[str]] = defaultdict(list)
    bad: list[str] = []
    batches = (paths[start : start + BATCH] for start in range(0, len(paths), BATCH))
    with tqdm(total=len(paths), desc="verify", unit=" images", disable=not progress) as bar:
        for results in on_all_cores(_look_at, batches, workers):
            for name, digest, shape, reason in results:
                if reason:
                    bad.append(f"{name} ({reason})")
                else:
                    same[digest].append(name)
                    sizes[shape].append(name)
            bar.update(len(results))
    report.checked = len(paths)
    _add(report, sorted(bad), "not readable")
    twins = sorted(sorted(names) for names in same.values() if len(names) > 1)
    if twins:
        first = " and ".join(twins[0][:2])
        report.notes.append(f"{len(twins):,} pictures come more than once, the first: {first}")
    if len(sizes) > 1:
        usual = max(sizes, key=lambda shape: len(sizes[shape]))
        odd = sorted(name for shape, names in sizes.items() if shape != usual for name in names)
        text = f"not of the usual {usual[1]} x {usual[0]} pixels"
        resized = Path(paths[0]).parent.parent / "prepared.json"
        if resized.exists():
            _add(report, odd, text)
        else:
            report.notes.append(f"{len(odd):,} images are {text}, the first: {odd[0]}")


def _look_at(paths: Sequence[str]) -> list[tuple[str, bytes, tuple[int, int], str]]:
    results = []
    for path in paths:
        name = os.path.basename(path)  # noqa: PTH119
        try:
            pixels = read_grey(path)
        except DataError as error:
            results.append((name, b"", (0, 0), reason_only(error, path)))
        else:
            digest = hashlib.blake2b(pixels.tobytes(), digest_size=16).digest()
            results.append((name, digest, (pixels.shape[0], pixels.shape[1]), ""))
    return results


def _check_frequencies(report: Report) -> None:
    whole = report.images == nih.published()["images"]
    for finding, row in report.frequencies.iterrows():
        expected = row["nih_share"] * report.images
        spread = (expected * (1 - row["nih_share"])) ** 0.5
        if whole and row["here"] != row["nih"]:
            report.problems.append(
                f"{finding}: {row['here']:,.0f} images, the NIH publishes {row['nih']:,.0f}"
            )
        elif not whole and abs(row["here"] - expected) > FAR * spread + 1:
            report.notes.append(
                f"{finding}: {row['share']:.1%} of the images, of the NIH's {row['nih_share']:.1%}"
            )


def describe(report: Report) -> str:
    """A report as text for the terminal."""
    lines = [
        f"{report.images:,} images of {report.patients:,} patients; {report.checked:,} decoded",
        f"{'':20}{'here':>9}{'share':>9}{'NIH':>9}",
    ]
    for finding, row in report.frequencies.iterrows():
        lines.append(f"{finding:20}{row['here']:9,.0f}{row['share']:9.2%}{row['nih_share']:9.2%}")
    lines += [f"note: {note}" for note in report.notes]
    lines += [f"PROBLEM: {problem}" for problem in report.problems]
    lines.append("no problems" if report.fine else f"{len(report.problems)} problems")
    return "\n".join(lines)
