"""The command line of `data-prep`: its subcommands, their options and what each runs.

An option has the name of the keyword argument of the function that its subcommand calls; one that
is not given is not passed. Each subcommand imports the modules it needs, so that it can be
interrupted at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

from data_prep.errors import DataError, printable

#: Options of the reader, not of the subcommand.
READER_OPTIONS = ("table", "group", "class_pattern", "exclude")

Words = dict[str, Any]


def generate(words: Words) -> int:
    from data_prep import synthetic_nih, synthetic_shapes

    layout = words.pop("layout")
    if layout == "cifar10" and (size := words.pop("size", 32)) != 32:
        raise DataError(f"--size is {size}: an image of CIFAR-10 has 32 pixels a side")
    makers: dict[str, Callable[..., Words]] = {
        "nih": synthetic_nih.generate_nih,
        "imagefolder": synthetic_shapes.generate_imagefolder,
        "cifar10": synthetic_shapes.generate_cifar10,
    }
    made = makers[layout](**words)
    of = f" of {made['patients']:,} patients" if "patients" in made else ""
    _print(f"{words['folder']}: {made['images']:,} images{of} {_new_text(made)}")
    return 0


def init(words: Words) -> int:
    from data_prep.init_folder import init_folder

    for line in init_folder(words["folder"], words.get("output"), **words["options"]):
        _print(line)
    return 0


def resize(words: Words) -> int:
    from data_prep.catalog import passed_over_text
    from data_prep.resize import resize_folder

    _warn_if_slow()
    made = resize_folder(**words)
    for note in filter(None, (passed_over_text(made["passed_over"]), *made["notes"])):
        _print(f"note: {note}", file=sys.stderr)
    return _print_result(words["target"], made)


def nih(words: Words) -> int:
    from data_prep.download import nih_sources
    from data_prep.nih_pipeline import prepare_nih

    _warn_if_slow()
    where = {"listing": "sources", "mirror": "mirror", "folder": "archives"}
    sources = nih_sources(**{name: words.pop(option, None) for name, option in where.items()})
    made = prepare_nih(**words, sources=sources)
    if made["absent"]:
        _print(
            f"{words['target']}: {made['absent']:,} images in the label file were in no archive;"
            " the label file in the target leaves them out",
            file=sys.stderr,
        )
    return _print_result(words["target"], made)


def _print(line: str, file: TextIO | None = None) -> None:
    print(printable(line), file=file)


def _warn_if_slow() -> None:
    from data_prep.png import shrink

    if shrink is None:
        print(
            "note: without the part of data_prep that is compiled when it is installed, this takes"
            " two to three times as long; install a C compiler, then data_prep again (make envs)",
            file=sys.stderr,
        )


def _print_result(target: str, made: Mapping[str, Any]) -> int:
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


def _new_text(made: Mapping[str, Any]) -> str:
    return f"({made['written']:,} new, {made['seconds']:.0f} s)"


def verify(words: Words) -> int:
    from data_prep.verify import format_report, verify_folder

    report = verify_folder(**_with_reader(words))
    print(format_report(report))
    return 0 if report.ok else 1


def pack(words: Words) -> int:
    from data_prep.packed import pack_folder

    made = pack_folder(**words)
    _print(f"{words['target']}: {made['images']:,} images of {made['size']} px in images.npy")
    return 0


def preview(words: Words) -> int:
    from data_prep.preview import preview_folder

    made = preview_folder(**_with_reader(words))
    bad = f", {made['unreadable']:,} unreadable" if made["unreadable"] else ""
    _print(f"{made['output']}: {made['sampled']:,} of {made['images']:,} images sampled{bad}")
    return 0


def _with_reader(words: Words) -> Words:
    """Return the words with the reader of the folder, unless one is named."""
    from data_prep.readers import labels_csv

    written = labels_csv.has_labels_csv(Path(words["folder"]))
    return {"reader": "table" if written else "nih", **words}


class Command(NamedTuple):
    """A subcommand: what it runs, its texts, and its arguments by their keys in `ARGUMENTS`."""

    run: Callable[[Words], int]
    help: str
    description: str
    arguments: str


FOLDER_ARGUMENTS = "--group --class-pattern --exclude"
READER_ARGUMENTS = f"--reader --table {FOLDER_ARGUMENTS} --num-workers"

COMMANDS = {
    "generate": Command(
        generate,
        "generate a synthetic data set in a published format",
        "Generate a synthetic data set. The layout nih contains X-ray-like images with findings,"
        " imagefolder and cifar10 images of ten classes. The same seed generates the same files.",
        "folder --layout --num-images --seed --size(generate) --num-workers",
    ),
    "resize": Command(
        resize,
        "resize all images of a folder to small squares, in grey or RGB",
        "Resize every image of SOURCE to a square, with antialiasing, and copy the labels to"
        " TARGET. SOURCE is never changed. To continue after an interruption, or to add new images,"
        " run the same command again.",
        "source target --size --skip-missing --format --quality --rgb --resize-mode"
        f" {READER_ARGUMENTS}",
    ),
    "init": Command(
        init,
        "recognise the layout of a data set, and write its table.toml and a recipe",
        "Recognise the layout of FOLDER: the NIH's ChestX-ray14, CheXpert, PadChest,"
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
        " for patients in two parts of the split. Count the labels in each part, and compare them"
        " with the published counts of the NIH. The exit code is 1 if there is a problem.",
        f"folder --seed --quick {READER_ARGUMENTS}",
    ),
    "pack": Command(
        pack,
        "pack all small images into one memory-mapped file",
        "Pack the images of SOURCE, a resized data folder, into one uint8 array file in TARGET."
        " Loaders map this file into memory instead of decoding image files.",
        f"source target --rgb(pack) {READER_ARGUMENTS}",
    ),
    "preview": Command(
        preview,
        "write a page with sampled images, labels, counts and sizes",
        "Write an HTML page that shows a data folder before training: sampled images with their"
        " labels, the classes in each part, and sizes.",
        f"folder --output(preview) --num-images(preview) --seed {READER_ARGUMENTS}",
    ),
}


def _flag(text: str, **how: Any) -> dict[str, Any]:
    return {"action": "store_const", "const": True, "help": text, **how}


def _text(metavar: str, text: str) -> dict[str, Any]:
    return {"metavar": metavar, "help": text}


def _number(text: str, metavar: str = "N", **how: Any) -> dict[str, Any]:
    return {"type": int, "metavar": metavar, "help": text, **how}


def _choice(choices: tuple[str, ...], text: str) -> dict[str, Any]:
    return {"choices": choices, "default": choices[0], "help": text}


#: The arguments of the subcommands. In brackets: the subcommand that has an own one.
ARGUMENTS = {
    "folder": _text("FOLDER", "the data folder"),
    "source": _text("SOURCE", "read images from this folder"),
    "target": _text("TARGET", "write to this folder: a new one, or that of an interrupted run"),
    "--layout": _choice(
        ("nih", "imagefolder", "cifar10"),
        "write the data set in this layout (default: nih)",
    ),
    "--num-images": _number(
        "generate N images (default: 1600; imagefolder 2000, cifar10 6000)", dest="images"
    ),
    "--num-images(preview)": _number(
        "decode up to N images, a third from each part (default: 999)"
    ),
    "--seed": _number("seed the random generator or the split (default: 0)"),
    "--size": _number("write images with this side length (default: 264)", "PIXELS"),
    "--size(generate)": _number(
        "generate images with this side length (default: 1024; imagefolder 256, cifar10 always 32)",
        metavar="PIXELS",
    ),
    "--skip-missing": _flag("skip images that the label file names but the folder lacks"),
    "--format": _choice(("png", "jpeg"), "write files in this format (default: png)"),
    "--quality": _number(
        "compress JPEG files with this quality (default: 90); PNG is lossless", "1..95"
    ),
    "--rgb": _flag("write RGB images (default: write grey images)", const=3, dest="channels"),
    "--rgb(pack)": _flag(
        "pack RGB images (default: RGB if the resized folder is RGB, else grey)",
        const=3,
        dest="channels",
    ),
    "--resize-mode": _choice(
        ("stretch", "center-crop"),
        "stretch an image, or cut out the square in the middle (default: stretch)",
    ),
    "--output": _text("FOLDER", "write the files to this folder (default: the data folder)"),
    "--output(preview)": _text("FILE", "write the page to FILE (default: FOLDER-preview.html)"),
    "--archives": _text("FOLDER", "read the archives from this folder (default: download them)"),
    "--mirror": _text("URL", "download from this address, under the NIH's file names"),
    "--sources": _text("FILE", "read addresses and checksums from a file such as sources.json"),
    "--labels": _text("FILE", "read this label file (default: download the label file)"),
    "--keep-originals": _text("FOLDER", "keep the 1024 px images in this folder"),
    "--connections": _number("download N archives at the same time (default: 2)"),
    "--quick": _flag("skip decoding (default: decode every image)", const=False, dest="decode"),
    "--reader": _text("NAME", "read this format: nih (default), table, imagefolder or cifar10"),
    "--table": _text(
        "FILE", "with --reader table, read the column mapping from FILE (default: table.toml)"
    ),
    "--group": _text(
        "REGEX",
        "with --reader imagefolder, group images by the text that REGEX matches in the path",
    ),
    "--class-pattern": _text(
        "REGEX",
        "with --reader imagefolder, use the text that REGEX matches in the path as the class",
    ),
    "--exclude": {
        "action": "append",
        **_text(
            "NAME",
            "with --reader imagefolder, ignore folders with this name; repeat it for more names",
        ),
    },
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
            one.add_argument(key.partition("(")[0], **ARGUMENTS[key])
        one.set_defaults(run=command.run)
    return top


def run(given: argparse.Namespace) -> int:
    """Run the parsed subcommand and return its exit code."""
    words = {name: value for name, value in vars(given).items() if value is not None}
    function: Callable[[Words], int] = words.pop("run")
    options = {name: words.pop(name) for name in READER_OPTIONS if name in words}
    return function(words | {"options": options} if hasattr(given, "group") else words)
