"""Images of any size and kind to small grey ones, once, so that training need not."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from tqdm import tqdm

from data_prep.catalog import LABEL_FILES, find_label_file, read_catalog
from data_prep.errors import DataError
from data_prep.files import on_all_cores, sole_writer, sweep, write_whole
from data_prep.images import read_grey
from data_prep.lists import TEST_LIST, TRAIN_VALID_LIST
from data_prep.prepared import (
    FORMATS,
    KINDS,
    TOOL,
    Reject,
    begin,
    check_settings,
    encode,
    finish,
    full_disk,
    reason_only,
    target_path,
)

BATCH = 16

#: A unit of work: where to read, where to write.
Pair = tuple[str, str]


def resize_folder(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    size: int = 264,
    format: str = "png",
    quality: int = 90,
    workers: int | None = None,
    only_present: bool = False,
    strict: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Write every image of `source` into `target` as a grey square of `size` pixels.

    `source` is a data folder (label file and images; the label file, and the NIH's lists where they
    are there, are copied and the images go to `target/images/`) or any folder of images, read with
    its subfolders, which the target repeats. Sampling is antialiased bilinear, as Pillow's; what is
    not square is stretched. Images are read as `read_grey` reads them, and the source is never
    changed. `format` is "png" or "jpeg", of this `quality` (1 to 95).

    An image that cannot be read is listed, with the reason, in `target/rejected.csv`, its row is
    left out of the copied label file, and the rest goes on; with `strict` it is an error at once.

    Each file is written under a temporary name and then renamed: after a kill or a full disk what
    is there is whole, and the same call goes on from there. `target/prepared.json` says what the
    images were made from and whether all are there; a call with other settings refuses.

    Returns what prepared.json holds, and `written`, `skipped` (done before), `rejected` (a list of
    name and reason) and `seconds`. Raises `DataError`, e.g. for a source equal to the target, a
    missing image, a full disk.
    """
    source, target = Path(source), Path(target)
    started = time.monotonic()
    settings = check_settings(size, format, quality)
    plan = _plan(source, target, only_present, format)
    settings = {"tool": TOOL, "source": str(source.resolve()), **settings}
    settings["images"] = len(plan.pairs)
    with sole_writer(target):
        begin(target, settings)
        done: set[str] = set()
        for folder in sorted({os.path.dirname(to) for _, to in plan.pairs}):  # noqa: PTH120
            Path(folder).mkdir(parents=True, exist_ok=True)
            sweep(Path(folder))
            with os.scandir(folder) as entries:
                done.update(entry.path for entry in entries)
        todo = [pair for pair in plan.pairs if pair[1] not in done]
        rejected = _resize_all(todo, len(plan.pairs), target, settings, workers, strict, progress)
        if plan.label_file is not None:
            # demo.json goes along so that nobody takes generated images for real ones.
            for name in ("demo.json", TRAIN_VALID_LIST, TEST_LIST):
                if (source / name).is_file():
                    write_whole(target / name, (source / name).read_bytes())
        finish(target, settings, rejected, plan.label_file, set(plan.names))
    return {
        **settings,
        "complete": True,
        "written": len(todo) - len(rejected),
        "skipped": len(plan.pairs) - len(todo),
        "rejected": rejected,
        "seconds": time.monotonic() - started,
    }


@dataclass
class _Plan:
    """What is to be done: which file to read and which to write, and the names for humans."""

    pairs: list[Pair]
    names: list[str]
    label_file: Path | None


def _plan(source: Path, target: Path, only_present: bool, format: str) -> _Plan:
    if not source.is_dir():
        what = "is not a folder" if source.exists() else "does not exist"
        raise DataError(f"{source} {what}: name a folder of images")
    here, there = source.resolve(), target.resolve()
    if here == there:
        raise DataError(f"{target} is the source itself: name another folder to write to")
    if here in there.parents or there in here.parents:
        raise DataError(f"{source} and {target}: one lies inside the other; name a folder outside")
    ending = FORMATS[format]
    if any((source / name).is_file() for name in LABEL_FILES):
        label_file = find_label_file(source)
        catalog = read_catalog(source, only_present=only_present)
        names = catalog["image"].tolist()
        places = [target_path(target, name, ending) for name in names]
        _no_two_alike(names, places)
        return _Plan(list(zip(catalog["path"], places, strict=True)), names, label_file)
    found = sorted(_images_under(source))
    if not found:
        raise DataError(f"{source}: neither a label file nor an image in it ({', '.join(KINDS)})")
    pairs, taken = [], set()
    for path in found:
        inner = target / Path(path).relative_to(source)
        to = str(inner.with_suffix(ending))
        if to in taken:  # x.jpg beside x.png
            to = f"{inner}{ending}"
        taken.add(to)
        pairs.append((path, to))
    return _Plan(pairs, [os.path.relpath(path, source) for path in found], None)


def _no_two_alike(names: list[str], places: list[str]) -> None:
    if len(set(places)) < len(places):
        seen: dict[str, str] = {}
        for name, place in zip(names, places, strict=True):
            if seen.setdefault(place, name) != name:
                raise DataError(f"{name} and {seen[place]} would become one file; rename one")


def _images_under(folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            if name.lower().endswith(KINDS) and not name.startswith("."):
                yield os.path.join(place, name)  # noqa: PTH118 (speed)


def _resize_all(
    todo: list[Pair],
    total: int,
    target: Path,
    settings: dict[str, Any],
    workers: int | None,
    strict: bool,
    progress: bool,
) -> list[Reject]:
    batches = (todo[start : start + BATCH] for start in range(0, len(todo), BATCH))
    work = partial(_resize_some, settings=settings, strict=strict)
    rejected: list[Reject] = []
    done = total - len(todo)
    with progress_bar(total, done, settings, progress) as bar:
        try:
            for count, rejects in on_all_cores(work, batches, workers):
                rejected += rejects
                done += count - len(rejects)
                bar.update(count)
        except OSError as error:
            raise DataError(full_disk(target, error, done, total)) from None
    return sorted(rejected)


def progress_bar(
    total: int | None, done: int, settings: dict[str, Any], show: bool
) -> tqdm[NoReturn]:
    """The bar of a resizing command: images/s and the time left, on stderr."""
    words = f"resize to {settings['size']} px"
    return tqdm(total=total, initial=done, desc=words, unit=" images", disable=not show)


def _resize_some(
    pairs: Sequence[Pair], *, settings: dict[str, Any], strict: bool
) -> tuple[int, list[Reject]]:
    rejected: list[Reject] = []
    for path, to in pairs:
        try:
            small = encode(read_grey(path), settings)
        except DataError as error:
            if strict:
                raise
            rejected.append((os.path.basename(path), reason_only(error, path)))  # noqa: PTH119
        else:
            write_whole(to, small)
    return len(pairs), rejected
