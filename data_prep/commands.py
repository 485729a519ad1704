"""Run the subcommands of `data-prep`: each function takes the options and returns the exit code.

Each function imports the modules it needs, so that every subcommand can be interrupted at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from data_prep.errors import DataError, count_text, printable

if TYPE_CHECKING:
    from data_prep.catalog import Catalog


def generate(options: argparse.Namespace) -> int:
    from data_prep import synthetic_nih, synthetic_shapes

    given = {"images": options.num_images, "size": options.size, "seed": options.seed}
    arguments = {name: value for name, value in given.items() if value is not None}
    arguments["num_workers"] = options.num_workers
    of = ""
    if options.layout == "nih":
        made = synthetic_nih.generate_nih(options.folder, **arguments)
        of = f" of {made['patients']:,} patients"
    elif options.layout == "table":
        made = synthetic_nih.generate_chexpert(options.folder, **arguments)
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


def init(options: argparse.Namespace) -> int:
    from data_prep.init_folder import init_folder

    for line in init_folder(options.folder, options.output, **_folder_options(options)):
        _print(line)
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
    _print_passed_over(made["passed_over"])
    for note in made["notes"]:
        _print(f"note: {note}", file=sys.stderr)
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
    print(printable(line), file=file)


def _print_passed_over(passed_over: Mapping[str, int]) -> None:
    from data_prep.catalog import passed_over_text

    if text := passed_over_text(passed_over):
        _print(f"note: {text}", file=sys.stderr)


def _warn_if_slow() -> None:
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

    report = verify_folder(
        options.folder,
        reader=_reader(options),
        seed=options.seed,
        decode=not options.quick,
        drop_duplicates=options.drop_duplicates,
        num_workers=options.num_workers,
        options=_reader_options(options),
    )
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
    """Print the counts of groups, images and classes or findings in each part."""
    import numpy as np

    from data_prep.catalog import count_by_part, part_notes, split_catalog
    from data_prep.readers import load_catalog, nih

    reader = _reader(options)
    if is_nih := reader == "nih":
        found, how = _nih_catalog(options), "by patient"
    else:
        for flag in ("skip_missing", "official_split", "labels_only"):
            if getattr(options, flag):
                option = f"--{flag.replace('_', '-')}"
                raise DataError(f"{option} works with the reader nih only, not {reader}; remove it")
        found, _ = load_catalog(reader, options.folder, **_reader_options(options))
        _print_passed_over(found.passed_over)
        how = "by group" if found.parts is None else "by group where it was not published"
    if options.official_split:
        how, parts = "by the NIH's lists, valid", nih.official_parts(found, options.seed)
    else:
        parts = split_catalog(found, seed=options.seed)
    notes = part_notes(found.classes, {part: found.labels[at] for part, at in parts.items()})
    parts = {"all": np.arange(len(found)), **parts}
    rows = count_by_part(found, parts, is_nih=is_nih)
    _print(f"{options.folder}, split {how} with seed {options.seed}")
    width = max(20, *(len(name) + 2 for name in found.classes))
    print(f"{'':{width}}" + "".join(f"{name:>10}" for name in parts))
    for name, counts in rows.items():
        _print(f"{name:{width}}" + "".join(f"{count:10,}" for count in counts))
    for note in notes:
        _print(f"note: {note}")
    return 0


def preview(options: argparse.Namespace) -> int:
    from data_prep.preview import preview_folder

    made = preview_folder(
        options.folder,
        options.output,
        reader=_reader(options),
        seed=options.seed,
        num_images=options.num_images,
        num_workers=options.num_workers,
        options=_reader_options(options),
    )
    bad = f", {made['unreadable']:,} unreadable" if made["unreadable"] else ""
    _print(f"{made['output']}: {made['sampled']:,} of {made['images']:,} images sampled{bad}")
    return 0


def _nih_catalog(options: argparse.Namespace) -> Catalog:
    from data_prep.manifest import MANIFEST
    from data_prep.readers import nih
    from data_prep.verify import wrong_sizes

    folder, check = Path(options.folder), not options.labels_only
    found = nih.catalog(folder, options.skip_missing and check, check_images=check)
    if check and (wrong := wrong_sizes(folder, found.images)):
        raise DataError(
            f"{folder}: {count_text(wrong, 'image is', 'images are')} not as {MANIFEST}"
            f" describes, the first: {wrong[0]}; 'data-prep verify {folder}' checks them all"
        )
    return found


def _reader(options: argparse.Namespace) -> str:
    from data_prep.readers import labels_csv

    if options.reader is not None:
        return str(options.reader)
    return "table" if labels_csv.has_labels_csv(Path(options.folder)) else "nih"


def _reader_options(options: argparse.Namespace) -> dict[str, Any]:
    given = {} if options.table is None else {"table": options.table}
    return given | _folder_options(options)


def _folder_options(options: argparse.Namespace) -> dict[str, Any]:
    given = {
        "group": options.group,
        "class_pattern": options.class_pattern,
        "exclude": options.exclude,
        "links": "follow" if options.follow_links else None,
    }
    return {name: value for name, value in given.items() if value is not None}
