"""Images of any size and kind to small grey ones, once, so that training need not."""

from __future__ import annotations

import io
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image
from tqdm import tqdm

from data_prep.catalog import LABEL_FILES, find_label_file, keep_rows, read_catalog
from data_prep.errors import DataError
from data_prep.files import (
    OUT_OF_SPACE,
    on_all_cores,
    read_json,
    sole_writer,
    sweep,
    write_json,
    write_whole,
)
from data_prep.images import open_grey

#: What goes into prepared.json; a new number when the same command would give other pixels.
TOOL = "data_prep resize 1"

KINDS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".pgm")

BATCH = 16

#: A unit of work: where to read, where to write.
Pair = tuple[str, str]


def resize_folder(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    size: int = 264,
    format: str = "png",
    workers: int | None = None,
    only_present: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Write every image of `source` into `target` as a grey square of `size` pixels.

    `source` is a data folder (label file and images; the label file is copied and the images go to
    `target/images/`) or any folder of images, read with its subfolders, which the target repeats.
    Sampling is antialiased bilinear, as Pillow's; what is not square is stretched. Images are read
    as `read_grey` reads them, and the source is never changed.

    Each file is written under a temporary name and then renamed: after a kill or a full disk what
    is there is whole, and the same call goes on from there. `target/prepared.json` says what the
    images were made from and whether all are there; a call with other settings refuses.

    Returns what prepared.json holds, and `written`, `skipped` (done before) and `seconds`.
    Raises `DataError`, e.g. for an image that cannot be read, source equal to target, a full disk.
    """
    source, target = Path(source), Path(target)
    started = time.monotonic()
    if format != "png":
        raise DataError(f"format '{format}' is not known; it is png")
    if not 1 <= size <= 16384:
        raise DataError(f"size is {size}: give the pixels of a side, 1 to 16384")
    pairs, label_file, rows = _plan(source, target, only_present)
    settings = {
        "tool": TOOL,
        "source": str(source.resolve()),
        "size": size,
        "format": format,
        "images": len(pairs),
    }
    with sole_writer(target):
        before = read_json(target / "prepared.json")
        if before is None and any(target.iterdir()) and not _only_leftovers(target):
            raise DataError(f"{target} holds other files; name an empty or a new folder")
        if before is not None and {**before, "complete": None} != {**settings, "complete": None}:
            differing = [key for key in settings if before.get(key) != settings[key]]
            raise DataError(
                f"{target} was made with another {' and '.join(differing)}"
                f" ({', '.join(str(before.get(key)) for key in differing)});"
                " name another folder, or remove that one"
            )
        if before is None or not before.get("complete"):
            _write_note(target, {**settings, "complete": False})
        folders = {os.path.dirname(to) for _, to in pairs}  # noqa: PTH120 (100,000 of them)
        done: set[str] = set()
        for folder in sorted(folders):
            Path(folder).mkdir(parents=True, exist_ok=True)
            sweep(Path(folder))
            with os.scandir(folder) as entries:
                done.update(entry.path for entry in entries)
        sweep(target)
        todo = [pair for pair in pairs if pair[1] not in done]
        _resize_all(todo, len(pairs), target, size, workers, progress)
        if label_file is not None:
            write_whole(target / label_file.name, rows)
        made = source / "demo.json"
        if made.exists():  # so that nobody takes generated images for real ones
            write_whole(target / made.name, made.read_bytes())
        _write_note(target, {**settings, "complete": True})
    return {
        **settings,
        "complete": True,
        "written": len(todo),
        "skipped": len(pairs) - len(todo),
        "seconds": time.monotonic() - started,
    }


def _plan(source: Path, target: Path, only_present: bool) -> tuple[list[Pair], Path | None, bytes]:
    """Pairs of files to read and to write, the label file, and the bytes of its copy."""
    if not source.is_dir():
        what = "is not a folder" if source.exists() else "does not exist"
        raise DataError(f"{source} {what}: name a folder of images")
    here, there = source.resolve(), target.resolve()
    if here == there:
        raise DataError(f"{target} is the source itself: name another folder to write to")
    if here in there.parents or there in here.parents:
        raise DataError(f"{source} and {target}: one lies inside the other; name a folder outside")
    if any((source / name).is_file() for name in LABEL_FILES):
        label_file = find_label_file(source)
        catalog = read_catalog(source, only_present=only_present)
        to = os.fspath(target / "images") + os.sep
        pairs = [
            (path, to + name) for path, name in zip(catalog["path"], catalog["image"], strict=True)
        ]
        return pairs, label_file, keep_rows(label_file, set(catalog["image"]))
    found = sorted(_images_under(source))
    if not found:
        raise DataError(f"{source}: neither a label file nor an image in it ({', '.join(KINDS)})")
    pairs, taken = [], set()
    for path in found:
        to = str(target / Path(path).relative_to(source).with_suffix(".png"))
        if to in taken:  # x.jpg beside x.png
            to = f"{target / Path(path).relative_to(source)}.png"
        taken.add(to)
        pairs.append((path, to))
    return pairs, None, b""


def _images_under(folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            if name.lower().endswith(KINDS) and not name.startswith("."):
                yield os.path.join(place, name)  # noqa: PTH118 (speed)


def _only_leftovers(target: Path) -> bool:
    """Whether all a killed run left is temporary files (it died before its first note)."""
    sweep(target)
    return not any(target.iterdir())


def _write_note(target: Path, content: dict[str, Any]) -> None:
    try:
        write_json(target / "prepared.json", content)
    except OSError as error:
        raise DataError(f"{target}: cannot be written ({error.strerror})") from None


def _resize_all(
    todo: list[Pair], total: int, target: Path, size: int, workers: int | None, progress: bool
) -> None:
    bar = tqdm(
        total=total,
        initial=total - len(todo),
        desc=f"resize to {size} px",
        unit=" images",
        disable=not progress,
    )
    batches = (todo[start : start + BATCH] for start in range(0, len(todo), BATCH))
    with bar:
        try:
            for count in on_all_cores(partial(_resize_some, size=size), batches, workers):
                bar.update(count)
        except OSError as error:
            raise DataError(full_disk(target, error, bar.n, total)) from None


def full_disk(folder: Path, error: OSError, done: int, total: int) -> str:
    """The line for a disk that is full, or that cannot be written to for another reason."""
    kept = f"{done:,} of {total:,} images are done and kept"
    if error.errno not in OUT_OF_SPACE:
        return f"{folder}: cannot be written ({error.strerror}); {kept}"
    try:
        free = f", {shutil.disk_usage(folder).free / 1e6:,.0f} MB free"
    except OSError:
        free = ""
    return (
        f"{folder}: the disk is full{free}; {kept}:"
        " free some space and run the same command again to go on"
    )


def _resize_some(pairs: Sequence[Pair], *, size: int) -> int:
    for path, to in pairs:
        write_whole(to, resized_png(open_grey(path), size))
    return len(pairs)


def resized_png(image: Image.Image, size: int) -> bytes:
    """A grey Pillow image as the PNG file of a square of `size` pixels."""
    small = image.resize((size, size), Image.Resampling.BILINEAR)
    buffer = io.BytesIO()
    # Level 1: at this size a level more costs time and saves next to nothing.
    small.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
