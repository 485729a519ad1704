"""The command line of `data-prep`: its subcommands, their options and what each runs.

Each function imports the modules it needs, so that every subcommand can be interrupted at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TextIO

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
        made = synthetic_shapes.generate_imagefolder(options.folder, **arguments)
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
    from data_prep.download import nih_sources
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


class Command(NamedTuple):
    """A subcommand: what it runs, its texts, and its arguments by their keys in `ARGUMENTS`."""

    run: Callable[[argparse.Namespace], int]
    help: str
    description: str
    arguments: str


FOLDER_ARGUMENTS = "--group --class-pattern --exclude --follow-links"
READER_ARGUMENTS = f"--reader --table {FOLDER_ARGUMENTS} --num-workers"

COMMANDS = {
    "generate": Command(
        generate,
        "generate a synthetic data set in a published format",
        "Generate a synthetic data set for trials and tests. The layouts nih and table contain"
        " X-ray-like images with findings, as the NIH's data set and as CheXpert. The layouts"
        " imagefolder and cifar10 contain images of ten classes. The same seed generates"
        " the same files.",
        "folder --layout --num-images --seed --size(generate) --num-workers",
    ),
    "resize": Command(
        resize,
        "resize all images of a folder to small squares, in grey or RGB",
        "Resize every image of SOURCE to a square, with antialiasing, and copy the labels to"
        " TARGET. SOURCE is never changed. To continue after an interruption, or to add new images,"
        " run the same command again.",
        "source target --size --skip-missing --format --quality --rgb --resize-mode --strict"
        f" {READER_ARGUMENTS}",
    ),
    "init": Command(
        init,
        "recognise the layout of a data set, and write its table.toml and a recipe",
        "Recognise the layout of FOLDER: the NIH's ChestX-ray14, CheXpert, MIMIC-CXR, PadChest,"
        " RSNA, VinDr-CXR, HAM10000, ISIC, a folder per class, or a CSV file with a column of image"
        " names and one of classes (the only other column, or one named class or label) or columns"
        " of 0 and 1. Write a recipe, and for a label file table.toml, to FOLDER, and print the"
        " next commands. Existing files are never replaced.",
        f"folder --output {FOLDER_ARGUMENTS}",
    ),
    "nih": Command(
        nih,
        "download the NIH's archives and resize the images to small grey squares",
        "Download ChestX-ray14 (12 archives, 45 GB), check the checksums, and write small grey"
        " images to TARGET. Each archive is removed when all of its images are written. To continue"
        " after an interruption, run the same command again.",
        "target --archives --mirror --sources --labels --keep-originals --size --format --quality"
        " --connections --num-workers",
    ),
    "verify": Command(
        verify,
        "check a data folder: files, decoding, duplicates, split, label counts",
        "Compare the files with the label file and decode every image. Search for duplicates and"
        " for patients in two parts of the split. For the NIH's data set, compare the label counts"
        " with the published counts. The exit code is 1 if there is a problem.",
        f"folder --seed --quick --drop-duplicates {READER_ARGUMENTS}",
    ),
    "pack": Command(
        pack,
        "pack all small images into one memory-mapped file",
        "Pack the images of SOURCE, a resized data folder, into one uint8 array file in TARGET."
        " Loaders map this file into memory instead of decoding image files.",
        f"source target --rgb(pack) {READER_ARGUMENTS}",
    ),
    "stats": Command(
        stats,
        "count the patients, images and findings of a data folder",
        "Print the number of patients, images and findings in each part of the split. Check the"
        " label file, and check that every image exists.",
        "folder --seed --skip-missing --official-split --labels-only --reader --table"
        f" {FOLDER_ARGUMENTS}",
    ),
    "preview": Command(
        preview,
        "write a page with sampled images, labels, counts, sizes and duplicates",
        "Write an HTML page that shows a data folder before training: sampled images with their"
        " labels, the classes in each part, sizes, pixel levels, duplicates, and groups in two"
        " parts.",
        f"folder --output(preview) --num-images(preview) --seed {READER_ARGUMENTS}",
    ),
}


def _flag(text: str) -> dict[str, Any]:
    return {"action": "store_true", "help": text}


def _text(metavar: str, text: str) -> dict[str, Any]:
    return {"metavar": metavar, "help": text}


def _number(text: str, default: int | None = None, metavar: str = "N") -> dict[str, Any]:
    return {"type": int, "default": default, "metavar": metavar, "help": text}


def _choice(choices: tuple[str, ...], text: str) -> dict[str, Any]:
    return {"choices": choices, "default": choices[0], "help": text}


#: The arguments of the subcommands. In brackets: the subcommand that has an own one.
ARGUMENTS = {
    "folder": _text("FOLDER", "the data folder"),
    "source": _text("SOURCE", "read images from this folder, or from an archive with --reader"),
    "target": _text("TARGET", "write to this folder, new or from an interrupted run"),
    "--layout": _choice(
        ("nih", "table", "imagefolder", "cifar10"),
        "write the data set in this layout (default: nih)",
    ),
    "--num-images": _number("generate N images (default: 1600; imagefolder 2000, cifar10 6000)"),
    "--num-images(preview)": _number(
        "decode up to N images, a third from each part (default: 999)", 999
    ),
    "--seed": _number("seed the random generator or the split (default: 0)", 0),
    "--size": _number("write images with this side length (default: 264)", 264, "PIXELS"),
    "--size(generate)": _number(
        "generate images with this side length (default: 1024; table 320, imagefolder"
        " 256, cifar10 always 32)",
        metavar="PIXELS",
    ),
    "--skip-missing": _flag(
        "skip images that the label file names but the folder lacks (default: stop with an error)"
    ),
    "--format": _choice(("png", "jpeg"), "write files in this format (default: png)"),
    "--quality": _number(
        "compress JPEG files with this quality (default: 90); PNG is lossless", 90, "1..95"
    ),
    "--rgb": _flag("write RGB images (default: write grey images)"),
    "--rgb(pack)": _flag("pack RGB images (default: RGB if the resized folder is RGB, else grey)"),
    "--resize-mode": _choice(
        ("stretch", "center-crop"),
        "stretch an image that is not square, or cut out the square in the middle (default:"
        " stretch)",
    ),
    "--strict": _flag(
        "stop at the first unreadable image (default: list unreadable images in rejected.csv)"
    ),
    "--output": _text("FOLDER", "write the files to this folder (default: the data folder)"),
    "--output(preview)": _text(
        "FILE", "write the page to FILE (default: FOLDER-preview.html, next to the folder)"
    ),
    "--archives": _text(
        "FOLDER", "read the archives from this folder (default: download the archives)"
    ),
    "--mirror": _text(
        "URL", "download from this address, under the NIH's file names (default: the NIH)"
    ),
    "--sources": _text(
        "FILE",
        "read addresses and checksums from this file, in the format of sources.json (default: the"
        " NIH's)",
    ),
    "--labels": _text("FILE", "read this label file (default: download the label file)"),
    "--keep-originals": _text(
        "FOLDER", "keep the 1024 px images in this folder (default: keep none)"
    ),
    "--connections": _number("download N archives at the same time (default: 2)", 2),
    "--quick": _flag("skip decoding (default: decode every image)"),
    "--drop-duplicates": _flag(
        "exclude images that occur again under another patient with equal labels, and list them in"
        " left_out.csv (default: only report duplicates)"
    ),
    "--official-split": _flag(
        "use the split in the folder's train_val_list.txt and test_list.txt (default: split by"
        " patient with the seed)"
    ),
    "--labels-only": _flag("read only the labels (default: also check that all images exist)"),
    "--reader": _text(
        "NAME",
        "read this format: nih, table, imagefolder or cifar10 (default: nih, or the format of a"
        " folder that data-prep wrote)",
    ),
    "--table": _text(
        "FILE",
        "with --reader table, read the column mapping from FILE (default: table.toml in the image"
        " folder)",
    ),
    "--group": _text(
        "REGEX",
        "with --reader imagefolder, group images by the text that REGEX matches in the path, or by"
        " the patient in DICOM headers with dicom:PatientID (default: every image is a group)",
    ),
    "--class-pattern": _text(
        "REGEX",
        "with --reader imagefolder, use the text that REGEX matches in an image's path as its class"
        " (default: the class is the folder)",
    ),
    "--exclude": {
        "action": "append",
        **_text(
            "NAME",
            "with --reader imagefolder, ignore folders with this name, such as masks; repeat the"
            " option for more names (default: ignore none)",
        ),
    },
    "--follow-links": _flag(
        "with --reader table or imagefolder, follow links out of the data folder (default: stop"
        " with an error)"
    ),
    "--num-workers": _number("use N worker processes (default: one per CPU core)"),
}


class Version(argparse.Action):
    """`--version`: print the version from the installed package's metadata."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata

        try:
            version = metadata.version("gpu-rosetta")
        except metadata.PackageNotFoundError:  # run from a folder that was copied
            version = "not installed"
        print(f"{parser.prog} {version}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser whose error is one line: what is wrong, and which command lists the options."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:  # here, so that the line names the help of the subcommand
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        line = f"data-prep: {message}; run '{self.prog} --help' for the possible arguments"
        self.exit(2, f"{printable(line)}\n")


def parser() -> argparse.ArgumentParser:
    """Build the parser with all subcommands."""
    top = _Parser(
        prog="data-prep",
        description="Convert published images, such as the NIH's chest X-rays, to small images"
        " ready to train on, or generate synthetic images.",
        epilog="A data folder contains the label file (Data_Entry_2017.csv or"
        " Data_Entry_2017_v2020.csv, or .gz) and the images, in images/ or in images_001/images/"
        " to images_012/images/. Every command can be interrupted and continues when run again.",
    )
    top.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    added = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        one = added.add_parser(name, help=command.help, description=command.description)
        for key in command.arguments.split():
            flag, own, _ = key.partition("(")
            short = ("-o",) if own and flag == "--output" else ()
            one.add_argument(*short, flag, **ARGUMENTS[key])
        one.set_defaults(run=command.run)
    return top
