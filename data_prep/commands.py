"""Run the subcommands of `data-prep`: each function takes the options and returns the exit code.

Each function imports the modules it needs, so that every subcommand can be interrupted at once.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, TextIO

from data_prep.errors import DataError, printable


def generate(options: argparse.Namespace) -> int:
    from data_prep import synthetic_chexpert, synthetic_nih, synthetic_shapes

    given = {"images": options.num_images, "size": options.size, "seed": options.seed}
    arguments = {name: value for name, value in given.items() if value is not None}
    arguments["num_workers"] = options.num_workers
    of = ""
    if options.layout == "nih":
        made = synthetic_nih.generate_nih(options.folder, **arguments)
        of = f" of {made['patients']:,} patients"
    elif options.layout == "table":
        made = synthetic_chexpert.generate_chexpert(options.folder, **arguments)
    elif options.layout == "cifar10":
        if options.size not in (None, 32):
            raise DataError(f"--size is {options.size}: an image of CIFAR-10 has 32 pixels a side")
        arguments.pop("size", None)
        made = synthetic_shapes.generate_cifar10(options.folder, **arguments)
    else:
        archive = options.layout == "imagenet"
        made = synthetic_shapes.generate_imagefolder(options.folder, archive=archive, **arguments)
    _print(f"{options.folder}: {made['images']:,} images{of} {_new_text(made)}")
    return 0


def resize(options: argparse.Namespace) -> int:
    from data_prep.resize import resize_folder

    _warn_if_slow()
    made = resize_folder(
        options.source,
        options.target,
        size=options.size,
        format=options.format,
        quality=options.quality,
        num_workers=options.num_workers,
        skip_missing=options.skip_missing,
        strict=options.strict,
        reader=options.reader,
        channels=3 if options.rgb else 1,
        resize_mode=options.resize_mode,
        options=_reader_options(options),
    )
    return _print_result(options.target, made)


def nih(options: argparse.Namespace) -> int:
    from data_prep.nih_archives import nih_sources
    from data_prep.nih_pipeline import prepare_nih

    _warn_if_slow()
    sources = nih_sources(listing=options.sources, mirror=options.mirror, folder=options.archives)
    made = prepare_nih(
        options.target,
        sources=sources,
        labels=options.labels,
        size=options.size,
        format=options.format,
        quality=options.quality,
        keep_originals=options.keep_originals,
        num_workers=options.num_workers,
        connections=options.connections,
    )
    if made["absent"]:
        _print(
            f"{options.target}: {made['absent']:,} images in the label file were in no archive;"
            " the label file in the target leaves them out",
            file=sys.stderr,
        )
    return _print_result(options.target, made)


def _print(line: str, file: TextIO | None = None) -> None:
    """Print a line that contains a file name, with unprintable characters as escapes."""
    print(printable(line), file=file)


def _warn_if_slow() -> None:
    """Print a note if the compiled part of data_prep is missing."""
    from data_prep.png import shrink

    if shrink is None:
        print(
            "note: without the part of data_prep that is compiled when it is installed, this takes"
            " two to three times as long; install a C compiler, then data_prep again (make envs)",
            file=sys.stderr,
        )


def _print_result(target: str, made: dict[str, Any]) -> int:
    """Print the last line of a resizing command; `DataError` if an image was left out."""
    ready = made["images"] - len(made["rejected"])
    colour = "RGB" if made.get("channels") == 3 else "grey"
    done = f"{ready:,} {colour} images of {made['size']} px"
    if made["rejected"]:
        name, reason = made["rejected"][0]
        raise DataError(
            f"{target}: {len(made['rejected']):,} of {made['images']:,} images were left out, the"
            f" first is {name}: {reason}; see {Path(target) / 'rejected.csv'}."
            f" {done} are ready to use"
        )
    _print(f"{target}: {done} {_new_text(made)}")
    return 0


def _new_text(made: dict[str, Any]) -> str:
    return f"({made['written']:,} new, {made['seconds']:.0f} s)"


def verify(options: argparse.Namespace) -> int:
    from data_prep.verify import format_report, verify_folder
    from data_prep.verify_reader import verify_reader

    reader = _reader(options)
    arguments = {
        "seed": options.seed,
        "decode": not options.quick,
        "drop_duplicates": options.drop_duplicates,
        "num_workers": options.num_workers,
    }
    if reader == "nih":
        report = verify_folder(options.folder, **arguments)
    else:
        of_reader = _reader_options(options)
        report = verify_reader(options.folder, reader, options=of_reader, **arguments)
    print(format_report(report))
    return 0 if report.ok else 1


def pack(options: argparse.Namespace) -> int:
    from data_prep.packed import pack_folder

    made = pack_folder(
        options.source,
        options.target,
        num_workers=options.num_workers,
        reader=options.reader,
        channels=3 if options.rgb else None,
        options=_reader_options(options),
    )
    _print(f"{options.target}: {made['images']:,} images of {made['size']} px in images.npy")
    return 0


def stats(options: argparse.Namespace) -> int:
    from data_prep.folder_state import is_packed
    from data_prep.manifest import MANIFEST
    from data_prep.nih_official_split import TEST_FILE, TRAIN_VALID_FILE, official_split
    from data_prep.prepared_folder import count_text
    from data_prep.readers.nih import read_catalog
    from data_prep.readers.nih_labels import FINDINGS
    from data_prep.split import split_by_patient
    from data_prep.verify import read_labels, wrong_sizes

    if (reader := _reader(options)) != "nih":
        return _reader_stats(options, reader)
    folder = Path(options.folder)
    if options.labels_only or is_packed(folder):
        catalog = read_labels(folder)
    else:
        catalog = read_catalog(folder, skip_missing=options.skip_missing)
    if not options.labels_only and (wrong := wrong_sizes(folder, catalog)):
        raise DataError(
            f"{folder}: {count_text(wrong, 'image is', 'images are')} not what {MANIFEST} says was"
            f" written, the first: {wrong[0]}; 'data-prep verify {folder}' checks them all"
        )
    if options.official_split:
        lists = folder / TRAIN_VALID_FILE, folder / TEST_FILE
        parts = official_split(catalog, *lists, seed=options.seed)
    else:
        parts = split_by_patient(catalog, seed=options.seed)
    columns = {"all": catalog, **parts}
    how = "by the NIH's lists, valid" if options.official_split else "by patient"
    _print(f"{options.folder}, split {how} with seed {options.seed}")
    print(f"{'':20}" + "".join(f"{name:>10}" for name in columns))
    for title, count in (
        ("patients", lambda rows: rows["patient"].nunique()),
        ("images", len),
        ("No Finding", lambda rows: int((~rows[list(FINDINGS)].any(axis=1)).sum())),
    ):
        print(f"{title:20}" + "".join(f"{count(rows):10,}" for rows in columns.values()))
    for finding in FINDINGS:
        counts = [int(rows[finding].sum()) for rows in columns.values()]
        print(f"{finding:20}" + "".join(f"{count:10,}" for count in counts))
    return 0


def _reader_stats(options: argparse.Namespace, reader: str) -> int:
    """Print the counts of any reader's images by part, and by class or finding."""
    import numpy as np

    from data_prep.catalog import UNCERTAIN, split_catalog
    from data_prep.readers import load_catalog

    for flag in ("skip_missing", "official_split", "labels_only"):
        if getattr(options, flag):
            option = f"--{flag.replace('_', '-')}"
            raise DataError(f"{option} works with the reader nih only, not {reader}; remove it")
    found, _ = load_catalog(reader, options.folder, **_reader_options(options))
    parts = {"all": np.arange(len(found)), **split_catalog(found, seed=options.seed)}
    groups = np.array(found.images if found.groups is None else found.groups, dtype=object)
    how = "" if found.parts is None else " where it was not published"
    _print(f"{options.folder}, split by group{how} with seed {options.seed}")
    width = max(20, *(len(name) + 2 for name in found.classes))
    print(f"{'':{width}}" + "".join(f"{name:>10}" for name in parts))
    rows = {
        "groups": [len(set(groups[at])) for at in parts.values()],
        "images": [len(at) for at in parts.values()],
    }
    for place, name in enumerate(found.classes):
        column = found.labels if found.task == "classes" else found.labels[:, place]
        wanted = place if found.task == "classes" else 1
        rows[name] = [int(np.count_nonzero(column[at] == wanted)) for at in parts.values()]
    if found.task == "findings":
        known = np.all(found.labels > UNCERTAIN, axis=1)  # and so not missing either
        rows["(all known)"] = [int(np.count_nonzero(known[at])) for at in parts.values()]
    for name, counts in rows.items():
        _print(f"{name:{width}}" + "".join(f"{count:10,}" for count in counts))
    return 0


def _reader(options: argparse.Namespace) -> str:
    """Return the reader named on the command line, or the default reader of the folder."""
    from data_prep.readers import labels_csv

    if options.reader is not None:
        return str(options.reader)
    return "table" if labels_csv.has_labels_csv(Path(options.folder)) else "nih"


def _reader_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the reader from the command line."""
    given = {"table": options.table, "group": options.group}
    return {name: value for name, value in given.items() if value is not None}
