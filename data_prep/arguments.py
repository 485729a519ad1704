"""The command-line arguments of `data-prep`: subcommands, options, defaults and help texts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from data_prep import commands
from data_prep.errors import printable


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

    def number(self, flag: str, text: str, default: int | None = None, metavar: str = "N") -> None:
        """Add an option with a whole number."""
        self.add_argument(flag, type=_whole_number, default=default, metavar=metavar, help=text)

    def text(self, flag: str, metavar: str, text: str) -> None:
        """Add an option with a text."""
        self.add_argument(flag, metavar=metavar, help=text)

    def switch(self, flag: str, text: str) -> None:
        """Add an option without a value."""
        self.add_argument(flag, action="store_true", help=text)


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

    generate = added.add_parser(
        "generate",
        help="generate a synthetic data set in a published format",
        description="Generate a synthetic data set for trials and tests. The layouts nih and table"
        " contain X-ray-like images with findings, as the NIH's data set and as CheXpert. The"
        " layouts imagefolder, imagenet and cifar10 contain images of ten classes. The same seed"
        " generates the same files.",
    )
    generate.add_argument("folder", metavar="FOLDER", help="write the data set to this folder")
    generate.add_argument(
        "--layout",
        choices=("nih", "table", "imagefolder", "imagenet", "cifar10"),
        default="nih",
        help="write the data set in this layout (default: nih)",
    )
    generate.number(
        "--num-images",
        "generate N images (default: 1600; imagefolder and imagenet 2000, cifar10 6000)",
    )
    generate.number("--seed", "seed the random generator (default: 0)", default=0)
    generate.number(
        "--size",
        "generate images with this side length (default: 1024; table 320, imagefolder and"
        " imagenet 256, cifar10 always 32)",
        metavar="PIXELS",
    )
    _add_workers(generate)
    generate.set_defaults(run=commands.generate)

    resize = added.add_parser(
        "resize",
        help="resize all images of a folder to small squares, in grey or RGB",
        description="Resize every image of SOURCE to a square, with antialiasing, and copy the"
        " labels to TARGET. SOURCE is never changed. To continue after an interruption, or to add"
        " new images, run the same command again.",
    )
    resize.add_argument(
        "source",
        metavar="SOURCE",
        help="read images from this folder, or from an archive with --reader",
    )
    resize.add_argument(
        "target", metavar="TARGET", help="write to this folder, new or from an interrupted run"
    )
    _add_size(resize)
    resize.switch(
        "--skip-missing",
        "skip images that the label file names but the folder lacks (default: stop with an error)",
    )
    _add_file_format(resize)
    resize.switch("--rgb", "write RGB images (default: write grey images)")
    resize.add_argument(
        "--resize-mode",
        choices=("stretch", "center-crop"),
        default="stretch",
        help="stretch an image that is not square, or cut out the square in the middle (default:"
        " stretch)",
    )
    _add_reader(resize)
    resize.switch(
        "--strict",
        "stop at the first unreadable image (default: list unreadable images in rejected.csv)",
    )
    _add_workers(resize)
    resize.set_defaults(run=commands.resize)

    init = added.add_parser(
        "init",
        help="recognise the layout of a data set, and write its table.toml and a recipe",
        description="Recognise the layout of FOLDER: the NIH's ChestX-ray14, CheXpert, MIMIC-CXR,"
        " PadChest, RSNA, VinDr-CXR, HAM10000, ISIC, a folder per class, or a CSV file with a"
        " column of image names and one of classes (the only other column, or one named class or"
        " label) or columns of 0 and 1. Write a recipe, and for a label file table.toml, to FOLDER,"
        " and print the next commands. Existing files are never replaced.",
    )
    init.add_argument("folder", metavar="FOLDER", help="recognise this folder")
    init.text("--output", "FOLDER", "write the files to this folder (default: the data folder)")
    _add_folder_options(init)
    init.set_defaults(run=commands.init)

    nih = added.add_parser(
        "nih",
        help="download the NIH's archives and resize the images to small grey squares",
        description="Download ChestX-ray14 (12 archives, 45 GB), check the checksums, and write"
        " small grey images to TARGET. Each archive is removed when all of its images are written."
        " To continue after an interruption, run the same command again.",
    )
    nih.add_argument(
        "target", metavar="TARGET", help="write to this folder, new or from an interrupted run"
    )
    nih.text(
        "--archives",
        "FOLDER",
        "read the archives from this folder (default: download the archives)",
    )
    nih.text(
        "--mirror",
        "URL",
        "download from this address, under the NIH's file names (default: the NIH)",
    )
    nih.text(
        "--sources",
        "FILE",
        "read addresses and checksums from this file, in the format of sources.json (default:"
        " the NIH's)",
    )
    nih.text("--labels", "FILE", "read this label file (default: download the label file)")
    nih.text(
        "--keep-originals", "FOLDER", "keep the 1024 px images in this folder (default: keep none)"
    )
    _add_size(nih)
    _add_file_format(nih)
    nih.number("--connections", "download N archives at the same time (default: 2)", default=2)
    _add_workers(nih)
    nih.set_defaults(run=commands.nih)

    verify = added.add_parser(
        "verify",
        help="check a data folder: files, decoding, duplicates, split, label counts",
        description="Compare the files with the label file and decode every image. Search for"
        " duplicates and for patients in two parts of the split. For the NIH's data set, compare"
        " the label counts with the published counts. The exit code is 1 if there is a problem.",
    )
    verify.add_argument("folder", metavar="FOLDER", help="check this data folder")
    _add_seed(verify)
    verify.switch("--quick", "skip decoding (default: decode every image)")
    verify.switch(
        "--drop-duplicates",
        "exclude images that occur again under another patient, and list the images in"
        " left_out.csv (default: only report duplicates)",
    )
    _add_reader(verify)
    _add_workers(verify)
    verify.set_defaults(run=commands.verify)

    pack = added.add_parser(
        "pack",
        help="pack all small images into one memory-mapped file",
        description="Pack the images of SOURCE, a resized data folder, into one uint8 array file"
        " in TARGET. Loaders map this file into memory instead of decoding image files.",
    )
    pack.add_argument("source", metavar="SOURCE", help="read images from this resized data folder")
    pack.add_argument("target", metavar="TARGET", help="write to this folder")
    pack.switch("--rgb", "pack RGB images (default: RGB if the resized folder is RGB, else grey)")
    _add_reader(pack)
    _add_workers(pack)
    pack.set_defaults(run=commands.pack)

    stats = added.add_parser(
        "stats",
        help="count the patients, images and findings of a data folder",
        description="Print the number of patients, images and findings in each part of the split."
        " Check the label file, and check that every image exists.",
    )
    stats.add_argument("folder", metavar="FOLDER", help="count the images of this data folder")
    _add_seed(stats)
    stats.switch("--skip-missing", "skip rows whose image is missing (default: stop with an error)")
    stats.switch(
        "--official-split",
        "use the split in the folder's train_val_list.txt and test_list.txt (default: split"
        " by patient with the seed)",
    )
    stats.switch(
        "--labels-only", "read only the labels (default: also check that all images exist)"
    )
    _add_reader(stats)
    stats.set_defaults(run=commands.stats)

    preview = added.add_parser(
        "preview",
        help="write a page with sampled images, labels, counts, sizes and duplicates",
        description="Write an HTML page that shows a data folder before training: sampled images"
        " with their labels, the classes in each part, sizes, pixel levels, duplicates, and groups"
        " in two parts.",
    )
    preview.add_argument("folder", metavar="FOLDER", help="show this data folder")
    preview.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the page to FILE (default: FOLDER-preview.html, next to the folder)",
    )
    preview.number(
        "--num-images", "decode up to N images, a third from each part (default: 999)", default=999
    )
    _add_seed(preview)
    _add_reader(preview)
    _add_workers(preview)
    preview.set_defaults(run=commands.preview)
    return top


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _add_size(parser: _Parser) -> None:
    parser.number(
        "--size", "write images with this side length (default: 264)", default=264, metavar="PIXELS"
    )


def _add_file_format(parser: _Parser) -> None:
    parser.add_argument(
        "--format",
        choices=("png", "jpeg"),
        default="png",
        help="write files in this format (default: png)",
    )
    parser.number(
        "--quality",
        "compress JPEG files with this quality (default: 90); PNG is lossless",
        default=90,
        metavar="1..95",
    )


def _add_seed(parser: _Parser) -> None:
    parser.number("--seed", "split with this seed (default: 0)", default=0)


def _add_reader(parser: _Parser) -> None:
    parser.text(
        "--reader",
        "NAME",
        "read this format: nih, table, imagefolder or cifar10 (default: nih, or the format of"
        " a folder that data-prep wrote)",
    )
    parser.text(
        "--table",
        "FILE",
        "with --reader table, read the column mapping from FILE (default: table.toml in the"
        " image folder)",
    )
    _add_folder_options(parser)


def _add_folder_options(parser: _Parser) -> None:
    parser.text(
        "--group",
        "REGEX",
        "with --reader imagefolder, group images by the text that REGEX matches in the path, or"
        " by the patient in DICOM headers with dicom:PatientID (default: every image is a group)",
    )
    parser.text(
        "--class-pattern",
        "REGEX",
        "with --reader imagefolder, use the text that REGEX matches in an image's path as its class"
        " (default: the class is the folder)",
    )
    parser.add_argument(
        "--exclude",
        action="append",
        metavar="NAME",
        help="with --reader imagefolder, ignore folders with this name, such as masks; repeat the"
        " option for more names (default: ignore none)",
    )
    parser.switch(
        "--follow-links",
        "with --reader table or imagefolder, follow links out of the data folder (default: stop"
        " with an error)",
    )


def _add_workers(parser: _Parser) -> None:
    parser.number("--num-workers", "use N worker processes (default: one per CPU core)")
