"""What can be said to `data-prep` on the command line."""

from __future__ import annotations

import argparse

from data_prep import commands


class Version(argparse.Action):
    """`--version`: what pyproject.toml says, by way of the installed package's metadata."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata

        try:
            version = metadata.version("chexnet-compare")
        except metadata.PackageNotFoundError:  # run from a folder that was copied
            version = "not installed"
        print(f"{parser.prog} {version}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="data-prep",
        description="From published images, the NIH's chest X-rays above all, or from nothing, to"
        " files ready to train on.",
        epilog="A data folder holds the label file (Data_Entry_2017.csv or"
        " Data_Entry_2017_v2020.csv, or .gz) and the images, in images/ or in images_001/images/"
        " to images_012/images/. Every command can be interrupted and goes on when run again.",
    )
    top.add_argument("--version", action=Version, nargs=0, help="show the version and exit")
    added = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    demo = added.add_parser(
        "demo",
        help="generate a set in a published format, to try everything out",
        description="Generate X-ray-like 1024 px images with planted findings, in exactly the"
        " NIH's layout and combinations, rare findings more often; or the same in CheXpert's"
        " layout; or pictures of ten classes in CIFAR-10's binary version, in a folder for each"
        " class, or in ImageNet's archive of archives. The same seed gives the same files.",
    )
    demo.add_argument("folder", help="the data folder to make")
    demo.add_argument(
        "--format",
        choices=("nih", "table", "imagefolder", "imagenet", "cifar10"),
        default="nih",
        help="the published layout (default nih)",
    )
    demo.add_argument("--images", type=int, help="how many (default 1600, of classes 2000 or 6000)")
    demo.add_argument(
        "--seed", type=int, default=0, help="another seed gives another set (default 0)"
    )
    demo.add_argument(
        "--size", type=int, help="pixels of a side (default 1024; table 320, imagefolder 256)"
    )
    _add_workers(demo)
    demo.set_defaults(run=commands.demo)

    resize = added.add_parser(
        "resize",
        help="make small images, grey or in colour, of any folder of images",
        description="Write every image of SOURCE, a data folder, any folder of images, or what"
        " --reader reads, into TARGET as a square, antialiased. The labels go along; SOURCE is not"
        " changed.",
    )
    resize.add_argument("source", help="folder to read")
    resize.add_argument("target", help="folder to write, new or from an interrupted run")
    resize.add_argument("--size", type=int, default=264, help="pixels of a side (default 264)")
    resize.add_argument(
        "--only-present",
        action="store_true",
        help="go on without the images the label file names but that are not there",
    )
    resize.add_argument(
        "--format", choices=("png", "jpeg"), default="png", help="files to write (default png)"
    )
    resize.add_argument(
        "--quality", type=int, default=90, help="of JPEG, 1 to 95 (default 90); PNG loses nothing"
    )
    resize.add_argument("--colour", "--color", action="store_true", help="RGB; without, grey")
    resize.add_argument(
        "--fit",
        choices=("stretch", "crop"),
        default="stretch",
        help="of an image that is not square: stretch it (default), or take its middle square",
    )
    _add_reader(resize)
    resize.add_argument(
        "--strict",
        action="store_true",
        help="stop at the first image that cannot be read, instead of listing it in rejected.csv",
    )
    _add_workers(resize)
    resize.set_defaults(run=commands.resize)

    nih = added.add_parser(
        "nih",
        help="fetch the NIH's archives and make small grey images of them, in one go",
        description="Fetch ChestX-ray14 (12 archives, 45 GB), check it, and fill TARGET with small"
        " grey images, a few archives at a time, each removed when its images are done. The 1024 px"
        " images are not kept unless asked for. Interrupted anywhere, the same command goes on.",
    )
    nih.add_argument("target", help="data folder to make, new or from an interrupted run")
    nih.add_argument("--archives", metavar="FOLDER", help="take the archives from this folder")
    nih.add_argument("--mirror", metavar="URL", help="fetch from here, under the NIH's file names")
    nih.add_argument("--sources", metavar="FILE", help="another list, in the form of sources.json")
    nih.add_argument("--labels", metavar="FILE", help="a label file on this machine")
    nih.add_argument("--originals", metavar="FOLDER", help="keep the 1024 px images here")
    nih.add_argument("--size", type=int, default=264, help="pixels of a side (default 264)")
    nih.add_argument(
        "--format", choices=("png", "jpeg"), default="png", help="files to write (default png)"
    )
    nih.add_argument("--quality", type=int, default=90, help="of JPEG, 1 to 95 (default 90)")
    nih.add_argument(
        "--connections", type=int, default=2, help="archives fetched at once (default 2)"
    )
    _add_workers(nih)
    nih.set_defaults(run=commands.nih)

    verify = added.add_parser(
        "verify",
        help="check a data folder: files, decoding, duplicates, split, frequencies",
        description="Check the files against the label file both ways, decode every image, look"
        " for duplicates and for patients in two parts of the split, and compare the findings with"
        " the NIH's published counts. Exit status 1 if there is a problem.",
    )
    verify.add_argument("folder", help="the data folder")
    verify.add_argument("--seed", type=int, default=0, help="seed of the split (default 0)")
    verify.add_argument("--no-decode", action="store_true", help="do not open the images")
    verify.add_argument(
        "--drop-leaks",
        action="store_true",
        help="leave out pictures that come again under another patient, in left_out.csv",
    )
    _add_reader(verify)
    _add_workers(verify)
    verify.set_defaults(run=commands.verify)

    pack = added.add_parser(
        "pack",
        help="put all small images into one memory-mapped file",
        description="Put the images of SOURCE, a resized data folder, into one uint8 array file in"
        " TARGET, which loaders map into memory instead of decoding files.",
    )
    pack.add_argument("source", help="a resized data folder")
    pack.add_argument("target", help="folder to write")
    pack.add_argument(
        "--colour",
        "--color",
        action="store_true",
        help="RGB; without, as the folder was resized, else grey",
    )
    _add_reader(pack)
    _add_workers(pack)
    pack.set_defaults(run=commands.pack)

    catalog = added.add_parser(
        "catalog",
        help="check a data folder and count its patients, images and findings",
        description="Check the label file and that every image is there; print the counts.",
    )
    catalog.add_argument("folder", help="the data folder")
    catalog.add_argument("--seed", type=int, default=0, help="seed of the split (default 0)")
    catalog.add_argument(
        "--only-present", action="store_true", help="leave out rows whose image is not there"
    )
    catalog.add_argument(
        "--nih-lists",
        action="store_true",
        help="split by train_val_list.txt and test_list.txt in the folder",
    )
    catalog.add_argument(
        "--labels-only", action="store_true", help="do not look for the images at all"
    )
    _add_reader(catalog)
    catalog.set_defaults(run=commands.catalog)
    return top


def _add_reader(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reader",
        metavar="NAME",
        help="the images' format: nih (default), table, imagefolder or cifar10; not needed for a"
        " folder that data-prep made",
    )
    parser.add_argument(
        "--table", metavar="FILE", help="of table: what the columns mean (default: its table.toml)"
    )
    parser.add_argument(
        "--group", metavar="REGEX", help="of imagefolder: what in a path says whose image it is"
    )


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, help="processes (default: one for each core)")
