"""Write a page that shows a data set before training: images, labels, counts, sizes, duplicates.

The page is one HTML file without scripts. All images are counted; a sample by a seed is decoded, so
that a data set of any size takes seconds and its page has less than a megabyte.
"""

from __future__ import annotations

import base64
import html
import io
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from tqdm import tqdm

from data_prep import manifest
from data_prep.catalog import (
    UNCERTAIN,
    Catalog,
    count_by_part,
    part_notes,
    passed_over_text,
    split_catalog,
)
from data_prep.errors import DataError, printable
from data_prep.files import map_in_processes, write_atomic
from data_prep.groups import shared_groups
from data_prep.prepared_folder import text_without_path
from data_prep.readers import catalog_reader as sources
from data_prep.readers import load_catalog
from data_prep.split import PARTS

BATCH = 8
#: Images of each part in the grid, the side of one in pixels, and the rows of a table or a list.
GRID, THUMBNAIL, ROWS = 24, 96, 50

#: An image to decode: its index, its source, and its pixels if they are in memory.
Job = tuple[int, str, np.ndarray | None]

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse }} th, td {{ padding: .1em .8em; text-align: right }}
th:first-child, td:first-child {{ text-align: left }} tr + tr {{ border-top: 1px solid #ddd }}
.grid {{ display: flex; flex-wrap: wrap; gap: 8px }} figure {{ width: 112px; margin: 0 }}
figcaption {{ font-size: 11px; line-height: 1.3; overflow-wrap: anywhere }}
.bad {{ color: #b00020 }}
</style></head><body><h1>{title}</h1>
{body}
</body></html>
"""


class Look(NamedTuple):
    """What the page shows of one decoded image."""

    at: int
    problem: str = ""
    sha256: str = ""
    size: tuple[int, int] = (0, 0)
    histogram: np.ndarray = np.zeros((3, 32))
    """The share of pixels in each of 32 ranges of levels, for each channel."""
    thumbnail: str = ""
    """A JPEG file in Base64."""


def preview_folder(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    reader: str = "nih",
    seed: int = 0,
    num_images: int = 999,
    num_workers: int | None = None,
    progress: bool = True,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write an HTML page with a sample of a data set's images and counts of all.

    Args:
        folder: the data folder, published or prepared.
        output: the page to write (default: `FOLDER-preview.html` beside the folder).
        reader: the format of the folder, as in `open_reader`.
        seed: of the split and the sample.
        num_images: decode up to as many images, a third of them from each part.
        num_workers: number of processes (default: one per CPU core).
        progress: show a progress bar.
        options: options of the reader, as in `open_reader`.

    Returns:
        The path of the page as `output`, and the numbers of `images`, `sampled` and `unreadable`.

    Raises:
        DataError: the folder cannot be read in this format, or the output is not an HTML file.
    """
    folder = Path(folder)
    output = Path(output or f"{os.path.realpath(folder)}-preview.html")
    if output.suffix.lower() not in (".html", ".htm"):
        raise DataError(f"{output}: the page is an HTML file; name a file that ends in .html")
    if num_images < len(PARTS):
        raise DataError(f"num_images is {num_images}; use {len(PARTS)} or more")
    found, array = load_catalog(reader, folder, **(options or {}))
    parts, problem = _parts(found, seed)
    rng = np.random.Generator(np.random.PCG64(seed))
    each = num_images // len(PARTS)
    sample = {part: rng.permutation(images)[:each].tolist() for part, images in parts.items()}
    chosen = [at for images in sample.values() for at in images]
    looks = _look(found, array, chosen, num_workers, progress)
    labels = {part: found.labels[at] for part, at in parts.items()}
    body = [
        f"<p>{len(found):,} images, split with seed {seed}. {len(chosen):,} of them were sampled"
        f" for images, sizes and levels. {_escape(passed_over_text(found.passed_over))}</p>",
        f'<p class="bad">{_escape(problem)}</p>' if problem else "",
        "<h2>Images by part</h2>",
        _counts(found, parts, is_nih=reader == "nih"),
        _list("What cannot be learned or measured", part_notes(found.classes, labels)),
        *(_grid(part, images, found, looks) for part, images in sample.items()),
        _sizes([look for look in looks.values() if not look.problem]),
        _levels([look.histogram for look in looks.values() if not look.problem]),
        _repeated(found, parts, _hashes(folder, found, looks), len(chosen)),
        _shared_groups(found, parts),
        _list(
            "Unreadable images in the sample",
            [f"{found.images[at]}: {look.problem}" for at, look in looks.items() if look.problem],
        ),
    ]
    title = _escape(f"Preview of {folder.resolve().name}")
    write_atomic(output, PAGE.format(title=title, body="\n".join(filter(None, body))).encode())
    unreadable = sum(bool(look.problem) for look in looks.values())
    numbers = {"images": len(found), "sampled": len(chosen), "unreadable": unreadable}
    return {"output": os.fspath(output), **numbers}


def _parts(found: Catalog, seed: int) -> tuple[dict[str, np.ndarray], str]:
    """Return the indices of each part; if it cannot be split, the published parts and why."""
    try:
        return split_catalog(found, seed=seed), ""
    except DataError as error:
        published = np.zeros(len(found), np.int8) if found.parts is None else found.parts
        parts = {part: np.flatnonzero(published == at) for at, part in enumerate(PARTS)}
        return parts, f"Training cannot use these parts: {error}"


def _look(
    found: Catalog,
    array: np.ndarray | None,
    chosen: Sequence[int],
    num_workers: int | None,
    progress: bool,
) -> dict[int, Look]:
    jobs: list[Job] = [
        (at, found.sources[at], None if array is None else np.asarray(array[at])) for at in chosen
    ]
    work = partial(_look_at, folder=os.fspath(found.folder), kind=found.kind)
    looks: dict[int, Look] = {}
    with tqdm(total=len(jobs), desc="preview", unit=" images", disable=not progress or None) as bar:
        for some in map_in_processes(work, jobs, BATCH, num_workers):
            looks |= {look.at: look for look in some}
            bar.update(len(some))
    return {at: looks[at] for at in chosen}


def _look_at(job: Job, *, folder: str, kind: str) -> Look:
    at, source, pixels = job
    path = os.path.join(folder, source)  # noqa: PTH118 (as in the error texts)
    try:
        if pixels is None:
            data = sources.read_source(folder, kind, source)
            pixels = sources.decode_source(data, kind, path, 3)
        else:
            data, pixels = pixels.tobytes(), sources.to_channels(pixels, 3)
    except DataError as error:
        return Look(at, text_without_path(error, path))
    height, width = pixels.shape[:2]
    levels = [np.bincount(pixels[..., c].ravel() >> 3, minlength=32) for c in range(3)]
    small = Image.fromarray(pixels)
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    jpeg = io.BytesIO()
    small.save(jpeg, "JPEG", quality=80)
    return Look(
        at,
        "",
        manifest.sha256_of(data),
        (width, height),
        np.array(levels) / (height * width),
        base64.b64encode(jpeg.getvalue()).decode(),
    )


def _counts(found: Catalog, parts: Mapping[str, np.ndarray], *, is_nih: bool) -> str:
    columns = {"all": np.arange(len(found)), **parts}
    rows = count_by_part(found, columns, is_nih=is_nih)
    body = [[name, *(f"{count:,}" for count in counts)] for name, counts in rows.items()]
    return _table(["", *columns], body, most=1200)  # ImageNet has 1,000 classes


def _grid(part: str, images: Sequence[int], found: Catalog, looks: Mapping[int, Look]) -> str:
    shown = [at for at in images if not looks[at].problem][:GRID]
    figures = [
        f'<figure><img alt="" src="data:image/jpeg;base64,{looks[at].thumbnail}"><figcaption>'
        f"<b>{_escape(_label(found, at))}</b><br>{_escape(found.images[at])}</figcaption></figure>"
        for at in shown
    ]
    return f'<h2>{part}</h2><div class="grid">{"".join(figures)}</div>'


def _label(found: Catalog, at: int) -> str:
    if found.task == "classes":
        return found.classes[found.labels[at]]
    marks = {1: "", UNCERTAIN: "?"}
    row = zip(found.classes, found.labels[at].tolist(), strict=True)
    return ", ".join(f"{name}{marks[code]}" for name, code in row if code in marks) or "no finding"


def _sizes(looks: Sequence[Look]) -> str:
    sizes = Counter(look.size for look in looks)
    rows = [[f"{width} x {height}", f"{n:,}"] for (width, height), n in sizes.most_common()]
    return f"<h2>Sizes in pixels</h2>{_table(['width x height', 'images'], rows)}"


def _levels(histograms: Sequence[np.ndarray]) -> str:
    """Return a chart of the levels 0 to 255: one line for grey images, three for RGB images."""
    if not histograms:
        return ""
    mean = np.mean(histograms, axis=0)
    is_grey = all((levels == levels[0]).all() for levels in histograms)
    lines = {"#333": mean[0]} if is_grey else dict(zip(("#c00", "#080", "#00c"), mean, strict=True))
    high = float(mean.max())
    paths = []
    for colour, levels in lines.items():
        points = " ".join(f"{9 + 18 * x},{150 - 140 * y / high:.1f}" for x, y in enumerate(levels))
        paths.append(f'<polyline fill="none" stroke="{colour}" points="{points}"/>')
    return (
        '<h2>Pixel levels</h2><svg width="576" height="170" role="img"'
        f' aria-label="histogram of the pixel levels">{"".join(paths)}'
        '<text x="0" y="166" font-size="11">0</text><text x="552" y="166" font-size="11">255</text>'
        "</svg>"
    )


def _hashes(folder: Path, found: Catalog, looks: Mapping[int, Look]) -> dict[int, str]:
    """Return the SHA-256 of all images in the folder's manifest, else of the sampled images."""
    rows = manifest.read_manifest(folder, partial=True) if manifest.has_manifest(folder) else {}
    if rows:
        known = {at: rows[image].sha256 for at, image in enumerate(found.images) if image in rows}
        return {at: sha256 for at, sha256 in known.items() if sha256}
    return {at: look.sha256 for at, look in looks.items() if look.sha256}


def _repeated(
    found: Catalog, parts: Mapping[str, np.ndarray], hashes: Mapping[int, str], sampled: int
) -> str:
    part_of = {at: part for part, images in parts.items() for at in images.tolist()}
    same: dict[str, list[str]] = defaultdict(list)
    for at, sha256 in hashes.items():
        same[sha256].append(f"{found.images[at]} ({part_of.get(at, 'no part')})")
    lines = [", ".join(images[:9]) for images in same.values() if len(images) > 1]
    where = "all" if len(hashes) == len(found) else f"{len(hashes):,} sampled"
    return _list(f"Images with the same bytes, among {where} images", lines)


def _shared_groups(found: Catalog, parts: Mapping[str, np.ndarray]) -> str:
    if found.groups is None:
        return ""
    shared = shared_groups(found.groups, parts)
    lines = [f"{group}: {', '.join(names)}" for group, names in shared.items()]
    return _list("Groups in two parts", sorted(lines))


def _list(title: str, lines: Sequence[str]) -> str:
    items = "".join(f"<li>{_escape(line)}</li>" for line in lines[:ROWS])
    more = f"<p>and {len(lines) - ROWS:,} more</p>" if len(lines) > ROWS else ""
    bad = ' class="bad"' if lines else ""
    return f"<h2>{_escape(title)}</h2><p{bad}>{len(lines) or 'none'}</p><ul>{items}</ul>{more}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], most: int = ROWS) -> str:
    def line(cells: Iterable[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{_escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(line(row, "td") for row in rows[:most])
    more = f"<p>and {len(rows) - most:,} more</p>" if len(rows) > most else ""
    return f"<table>{line(header, 'th')}{body}</table>{more}"


def _escape(text: str) -> str:
    """Return an untrusted text for the page, at most 300 characters."""
    text = printable(text)
    return html.escape(text if len(text) <= 300 else f"{text[:300]}...")
