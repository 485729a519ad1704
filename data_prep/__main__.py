"""The command line: `data-prep …`, or `python -m data_prep …`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from data_prep.errors import DataError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0, 2 for an error the user can put right, 130 for Ctrl-C."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except DataError as error:
        print(f"data-prep: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has gone, as in `data-prep … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print(
            "data-prep: interrupted; what is done is kept, run the same command again to go on",
            file=sys.stderr,
        )
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="data-prep",
        description="From the NIH's chest X-rays, or from nothing, to files ready to train on.",
        epilog="A data folder holds the label file (Data_Entry_2017.csv or"
        " Data_Entry_2017_v2020.csv, or .gz) and the images, in images/ or in images_001/images/"
        " to images_012/images/. Every command can be interrupted and goes on when run again.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    demo = commands.add_parser(
        "demo",
        help="generate an X-ray-like set in the NIH's layout, to try everything out",
        description="Generate X-ray-like 1024 px images with planted findings, in exactly the"
        " NIH's layout and at its frequencies. The same seed gives the same files.",
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
    print(
        f"{options.folder}: {made['images']:,} images of {made['patients']:,} patients"
        f" ({made['written']:,} new, {made['seconds']:.0f} s)"
    )
    return 0


def _resize(options: argparse.Namespace) -> int:
    from data_prep.resize import resize_folder

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
    print(f"{target}: {done} ({made['written']:,} new, {made['seconds']:.0f} s)")
    return 0


def _catalog(options: argparse.Namespace) -> int:
    from data_prep.catalog import FINDINGS, read_catalog
    from data_prep.split import split_by_patient

    catalog = read_catalog(
        options.folder, check_images=not options.labels_only, only_present=options.only_present
    )
    parts = split_by_patient(catalog, seed=options.seed)
    columns = {"all": catalog, **parts}
    print(f"{options.folder}, split by patient with seed {options.seed}")
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
