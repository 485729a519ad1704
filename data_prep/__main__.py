"""The command line `data-prep`: its subcommands, their options and what each runs.

An option has the name of a keyword argument of the function that its subcommand calls.
"""

from __future__ import annotations

import argparse
import inspect
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TextIO

from data_prep.errors import BROKEN_PIPE_EXIT_CODE, DataError, printable

#: Options of the reader, not of the subcommand.
READER_OPTIONS = ("table", "group", "class_pattern", "exclude")

Words = dict[str, Any]


def generate(words: Words) -> int:
    """Generate a synthetic data set in a published format.

    The layout nih contains X-ray-like images with findings, imagefolder and cifar10 images of ten
    classes. The same seed generates the same files.
    """
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
    """Recognise the layout of a data set, and write its table.toml and a recipe.

    Known are the NIH's ChestX-ray14, CheXpert, PadChest, RSNA, VinDr-CXR, HAM10000, ISIC, a folder
    per class, and a CSV file with a column of image names. Existing files are never replaced.
    """
    from data_prep.init_folder import init_folder

    for line in init_folder(words["folder"], words.get("output"), **words["options"]):
        _print(line)
    return 0


def resize(words: Words) -> int:
    """Resize all images of a folder to small squares, in grey or RGB.

    The labels are copied to TARGET, and SOURCE is never changed. To add new images, run the same
    command again.
    """
    from data_prep.catalog import passed_over_text
    from data_prep.resize import resize_folder

    _warn_if_slow()
    made = resize_folder(**words)
    for note in filter(None, (passed_over_text(made["passed_over"]), *made["notes"])):
        _print(f"note: {note}", file=sys.stderr)
    return _print_result(words["target"], made)


def nih(words: Words) -> int:
    """Download the NIH's archives and resize the images to small grey squares.

    ChestX-ray14 has 12 archives, 45 GB. Their checksums are checked, and each is removed when all
    of its images are written.
    """
    from data_prep.download import nih_sources
    from data_prep.nih_pipeline import prepare_nih

    _warn_if_slow()
    where = {"listing": "sources", "mirror": "mirror", "folder": "archives"}
    sources = nih_sources(**{name: words.pop(option, None) for name, option in where.items()})
    made = prepare_nih(**words, sources=sources)
    if made["absent"]:
        gone = f"{words['target']}: {made['absent']:,} images of the label file"
        _print(f"{gone} were in no archive and are left out", file=sys.stderr)
    return _print_result(words["target"], made)


def _print(line: str, file: TextIO | None = None) -> None:
    print(printable(line), file=file)


def _warn_if_slow() -> None:
    from data_prep.png import shrink

    if shrink is None:
        print(
            "note: without data_prep's C code this takes two to three times as long; install a C"
            " compiler, then data_prep again (make envs)",
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
            f" first is {name}: {reason}; see {Path(target) / 'rejected.csv'}. {done} are ready"
        )
    _print(f"{target}: {done} {_new_text(made)}")
    return 0


def _new_text(made: Mapping[str, Any]) -> str:
    return f"({made['written']:,} new, {made['seconds']:.0f} s)"


def verify(words: Words) -> int:
    """Check a data folder: files, decoding, duplicates, split, label counts.

    The exit code is 1 if there is a problem, such as a patient in two splits.
    """
    from data_prep.verify import format_report, verify_folder

    report = verify_folder(**words)
    print(format_report(report))
    return 0 if report.ok else 1


def pack(words: Words) -> int:
    """Pack all small images into one memory-mapped file."""
    from data_prep.packed import pack_folder

    made = pack_folder(**words)
    _print(f"{words['target']}: {made['images']:,} images of {made['size']} px in images.npy")
    return 0


def preview(words: Words) -> int:
    """Write a page with sampled images, labels, counts and sizes."""
    from data_prep.preview import preview_folder

    made = preview_folder(**words)
    bad = f", {made['unreadable']:,} unreadable" if made["unreadable"] else ""
    _print(f"{made['output']}: {made['sampled']:,} of {made['images']:,} images sampled{bad}")
    return 0


FOLDER_ARGUMENTS = "--group --class-pattern --exclude"
READER_ARGUMENTS = f"--reader --table {FOLDER_ARGUMENTS} --num-workers"
SIZES = "--size --format --quality"

#: The arguments of each subcommand, by their keys in `ARGUMENTS`.
COMMANDS = {
    generate: "folder --layout --num-images --seed --size(generate) --num-workers",
    resize: f"source target {SIZES} --skip-missing --rgb --resize-mode {READER_ARGUMENTS}",
    init: f"folder --output {FOLDER_ARGUMENTS}",
    nih: f"target --archives --mirror --sources --labels --keep-originals {SIZES}"
    " --connections --num-workers",
    verify: f"folder --seed --quick {READER_ARGUMENTS}",
    pack: f"source target --rgb(pack) {READER_ARGUMENTS}",
    preview: f"folder --output(preview) --num-images(preview) --seed {READER_ARGUMENTS}",
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
    "target": _text("TARGET", "write to this folder, new or from an interrupted run"),
    "--layout": _choice(("nih", "imagefolder", "cifar10"), "in this layout (default: nih)"),
    "--num-images": _number("generate N images (default: 1600, 2000 or 6000)", dest="images"),
    "--num-images(preview)": _number("decode up to N images (default: 999)"),
    "--seed": _number("seed the random generator or the split (default: 0)"),
    "--size": _number("write images with this side length (default: 264)", "PIXELS"),
    "--size(generate)": _number(
        "generate images with this side length (default: 1024; imagefolder 256, cifar10 always 32)",
        metavar="PIXELS",
    ),
    "--skip-missing": _flag("skip images that the label file names but the folder lacks"),
    "--format": _choice(("png", "jpeg"), "write files in this format (default: png)"),
    "--quality": _number("compress JPEG files with this quality (default: 90)", "1..95"),
    "--rgb": _flag("write RGB images (default: write grey images)", const=3, dest="channels"),
    "--rgb(pack)": _flag("pack RGB images (default: as in SOURCE)", const=3, dest="channels"),
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
    "--table": _text("FILE", "table: read the column mapping from FILE (default: table.toml)"),
    "--group": _text("REGEX", "imagefolder: the text that REGEX matches in a path is the group"),
    "--class-pattern": _text("REGEX", "imagefolder: what REGEX matches in a path is the class"),
    "--exclude": {
        "action": "append",
        **_text("NAME", "imagefolder: ignore folders with this name; repeat it for more names"),
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
        epilog="Every command can be interrupted and continues when run again.",
    )
    top.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    added = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command, arguments in COMMANDS.items():
        text = inspect.getdoc(command) or ""
        one = added.add_parser(command.__name__, help=text.partition(".\n")[0], description=text)
        for key in arguments.split():
            one.add_argument(key.partition("(")[0], **ARGUMENTS[key])
        one.set_defaults(run=command)
    return top


def run(given: argparse.Namespace) -> int:
    """Run the parsed subcommand and return its exit code."""
    words = {name: value for name, value in vars(given).items() if value is not None}
    function: Callable[[Words], int] = words.pop("run")
    options = {name: words.pop(name) for name in READER_OPTIONS if name in words}
    return function(words | {"options": options} if hasattr(given, "group") else words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, 1 (a problem), 2 (a user error), 130 (Ctrl-C) or 141 (a pipe)."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # what cannot be encoded is printed as escapes
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            given = parser().parse_args(arguments)
        except SystemExit:  # from argparse, after the help or an error is printed
            sys.stdout.flush()
            raise
        code = run(given)
        sys.stdout.flush()
        return code
    except DataError as error:
        print(f"data-prep: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:  # one that only the environment `lab` has
        print(f"data-prep: install {error.name}, or use .venvs/lab/bin/data-prep", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the program that reads our output has ended, as in `… | head`
        _discard_output()
        return BROKEN_PIPE_EXIT_CODE
    except OSError as error:  # the disk is full, read-only or gone, or nothing can be printed
        _discard_output()
        where = error.filename or "standard output"
        reason = f"{printable(os.fsdecode(where))}: {error.strerror or error}"
        print(f"data-prep: {reason}; fix this and run the same command again", file=sys.stderr)
        return 2
    except MemoryError:
        print("data-prep: not enough memory; run again with fewer --num-workers", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        said = "interrupted; finished images are kept, run the same command again to continue"
        print(f"data-prep: {said}", file=sys.stderr)
        return 130


def _discard_output() -> None:
    """Redirect standard output to the null device, so that Python reports no error at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
