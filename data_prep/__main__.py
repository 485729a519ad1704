"""The command line: `data-prep …`, or `python -m data_prep …`."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from data_prep.errors import DataError, printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command: 0, 1 (`verify` found a problem), 2 (a user error) or 130 (Ctrl-C)."""
    _have_output()
    try:
        options = _parser().parse_args(arguments)
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except DataError as error:
        print(f"data-prep: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has gone, as in `data-prep … | head`
        _drop_output()
        return 1
    except OSError as error:  # the disk is full, read-only or gone, or nothing can be printed
        _drop_output()
        where = error.filename or ("standard output" if _is_here() else "the working folder")
        print(
            f"data-prep: {printable(os.fsdecode(where))}: {error.strerror or error}; what is done"
            " is kept, put that right and run the same command again",
            file=sys.stderr,
        )
        return 2
    except MemoryError:
        print("data-prep: not enough memory; try again with fewer --workers", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "data-prep: interrupted; what is done is kept, run the same command again to go on",
            file=sys.stderr,
        )
        return 130


def _have_output() -> None:
    """Give a process that was started without some of its streams (`>&-`) others, which lead
    nowhere, and have those it has print any name: what they cannot encode becomes an escape."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # in this order each gets its own number, the lowest free
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115, PTH123 (until we end)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Keep Python from complaining at its end of what it could not print."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _is_here() -> bool:
    """Whether the folder this runs in is still there."""
    with contextlib.suppress(OSError):
        return bool(os.getcwd())  # noqa: PTH109
    return False


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="data-prep",
        description="From the NIH's chest X-rays, or from nothing, to files ready to train on.",
        epilog="A data folder holds the label file (Data_Entry_2017.csv or"
        " Data_Entry_2017_v2020.csv, or .gz) and the images, in images/ or in images_001/images/"
        " to images_012/images/. Every command can be interrupted and goes on when run again.",
    )
    parser.add_argument("--version", action=Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    demo = commands.add_parser(
        "demo",
        help="generate an X-ray-like set in the NIH's layout, to try everything out",
        description="Generate X-ray-like 1024 px images with planted findings, in exactly the"
        " NIH's layout and combinations, rare ones oftener. The same seed gives the same files.",
    )
    demo.add_argument("folder", help="the data folder to make")
    demo.add_argument("--images", type=int, default=1600, help="how many (default 1600)")
    demo.add_argument("--seed", type=int, default=0, help="another seed, another set (default 0)")
    demo.add_argument("--size", type=int, default=1024, help="pixels of a side (default 1024)")
    _add_workers(demo)
    demo.set_defaults(run=_demo)

    resize = commands.add_parser(
        "resize",
        help="make small grey images of any folder of images",
        description="Write every image of SOURCE, a data folder or any folder of images, into"
        " TARGET as a grey square, antialiased. The label file goes along; SOURCE is not changed.",
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
    resize.add_argument(
        "--strict",
        action="store_true",
        help="stop at the first image that cannot be read, instead of listing it in rejected.csv",
    )
    _add_workers(resize)
    resize.set_defaults(run=_resize)

    nih = commands.add_parser(
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
    nih.set_defaults(run=_nih)

    verify = commands.add_parser(
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
    _add_workers(verify)
    verify.set_defaults(run=_verify)

    pack = commands.add_parser(
        "pack",
        help="put all small images into one memory-mapped file",
        description="Put the images of SOURCE, a resized data folder, into one uint8 array file in"
        " TARGET, which loaders map into memory instead of decoding files.",
    )
    pack.add_argument("source", help="a resized data folder")
    pack.add_argument("target", help="folder to write")
    _add_workers(pack)
    pack.set_defaults(run=_pack)

    catalog = commands.add_parser(
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
    catalog.set_defaults(run=_catalog)
    return parser


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, help="processes (default: one for each core)")


def _demo(options: argparse.Namespace) -> int:
    from data_prep.demo import make_demo

    made = make_demo(
        options.folder,
        images=options.images,
        seed=options.seed,
        size=options.size,
        workers=options.workers,
    )
    _print(
        f"{options.folder}: {made['images']:,} images of {made['patients']:,} patients"
        f" ({made['written']:,} new, {made['seconds']:.0f} s)"
    )
    return 0


def _resize(options: argparse.Namespace) -> int:
    from data_prep.resize import resize_folder

    _tell_if_slow()
    made = resize_folder(
        options.source,
        options.target,
        size=options.size,
        format=options.format,
        quality=options.quality,
        workers=options.workers,
        only_present=options.only_present,
        strict=options.strict,
    )
    return _say(options.target, made)


def _nih(options: argparse.Namespace) -> int:
    from data_prep.fetch import prepare_nih
    from data_prep.sources import nih_sources

    _tell_if_slow()
    sources = nih_sources(listing=options.sources, mirror=options.mirror, folder=options.archives)
    made = prepare_nih(
        options.target,
        sources=sources,
        labels=options.labels,
        size=options.size,
        format=options.format,
        quality=options.quality,
        originals=options.originals,
        workers=options.workers,
        connections=options.connections,
    )
    if made["absent"]:
        _print(
            f"{options.target}: {made['absent']:,} images of the label file were in no archive;"
            " their rows are left out",
            file=sys.stderr,
        )
    return _say(options.target, made)


def _print(line: str, file: TextIO | None = None) -> None:
    """A line that holds a name, which may hold anything."""
    print(printable(line), file=file)


def _tell_if_slow() -> None:
    """A working installation that was meant to be faster says nothing by itself."""
    from data_prep.png import shrink

    if shrink is None:
        print(
            "note: without the part of data_prep that is compiled when it is installed, this takes"
            " two to three times as long; install a C compiler, then data_prep again (make envs)",
            file=sys.stderr,
        )


def _say(target: str, made: dict[str, Any]) -> int:
    """The last line of a resizing command; an error if an image had to be left out."""
    ready = made["images"] - len(made["rejected"])
    done = f"{ready:,} grey images of {made['size']} px"
    if made["rejected"]:
        name, reason = made["rejected"][0]
        raise DataError(
            f"{target}: {len(made['rejected']):,} of {made['images']:,} images were left out, the"
            f" first is {name}: {reason}; see {Path(target) / 'rejected.csv'}."
            f" The other {done} are ready to use"
        )
    _print(f"{target}: {done} ({made['written']:,} new, {made['seconds']:.0f} s)")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from data_prep.verify import describe, verify_folder

    report = verify_folder(
        options.folder,
        seed=options.seed,
        decode=not options.no_decode,
        drop_leaks=options.drop_leaks,
        workers=options.workers,
    )
    print(describe(report))
    return 0 if report.fine else 1


def _pack(options: argparse.Namespace) -> int:
    from data_prep.packed import pack_folder

    made = pack_folder(options.source, options.target, workers=options.workers)
    _print(f"{options.target}: {made['images']:,} images of {made['size']} px in images.npy")
    return 0


def _catalog(options: argparse.Namespace) -> int:
    from data_prep.lists import TEST_LIST, TRAIN_VALID_LIST, split_by_lists
    from data_prep.manifest import MANIFEST
    from data_prep.packed import is_packed
    from data_prep.prepared import number
    from data_prep.readers.nih import read_catalog
    from data_prep.readers.nih_labels import FINDINGS
    from data_prep.split import split_by_patient
    from data_prep.verify import labelled, wrong_sizes

    folder = Path(options.folder)
    if options.labels_only or is_packed(folder):
        catalog = labelled(folder)
    else:
        catalog = read_catalog(folder, only_present=options.only_present)
    if not options.labels_only and (wrong := wrong_sizes(folder, catalog)):
        raise DataError(
            f"{folder}: {number(wrong, 'image is', 'images are')} not what {MANIFEST} says was"
            f" written, the first: {wrong[0]}; 'data-prep verify {folder}' looks at them all"
        )
    if options.nih_lists:
        lists = folder / TRAIN_VALID_LIST, folder / TEST_LIST
        parts = split_by_lists(catalog, *lists, seed=options.seed)
    else:
        parts = split_by_patient(catalog, seed=options.seed)
    columns = {"all": catalog, **parts}
    how = "by the NIH's lists, valid" if options.nih_lists else "by patient"
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


if __name__ == "__main__":
    sys.exit(main())
