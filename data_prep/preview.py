"""Write a page that shows a data set before training: images, labels, counts and sizes.

The page is one HTML file without scripts. All images are counted; a sample by a seed is decoded, so
that a data set of any size takes seconds and its page has less than a megabyte.
"""

from __future__ import annotations

import base64
import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
from PIL import Image
from tqdm import tqdm

from data_prep.catalog import (
    UNCERTAIN,
    Catalog,
    count_labels,
    part_notes,
    passed_over_text,
    split_catalog,
)
from data_prep.errors import DataError, printable
from data_prep.files import map_in_processes, write_atomic
from data_prep.prepared_folder import text_without_path
from data_prep.readers import catalog_reader as sources
from data_prep.readers import load_catalog
from data_prep.split import PARTS

BATCH = 8
#: Images of each part in the grid, the side of one in pixels, and the lines of a list.
GRID, THUMBNAIL, LINES = 24, 96, 50

PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title|short }}</title><style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1000px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse } th, td { padding: .1em .8em; text-align: right }
th:first-child, td:first-child { text-align: left } tr + tr { border-top: 1px solid #ddd }
.grid { display: flex; flex-wrap: wrap; gap: 8px } figure { width: 112px; margin: 0 }
figcaption { font-size: 11px; line-height: 1.3; overflow-wrap: anywhere }
.bad { color: #b00020 }
</style></head><body><h1>{{ title|short }}</h1>
<p>{{ summary|short }}</p>
{% if problem %}<p class="bad">{{ problem|short }}</p>{% endif %}
{% for name, header, rows in tables %}<h2>{{ name }}</h2><table><tr>
{%- for cell in header %}<th>{{ cell }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell|short }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% endfor %}
{% for part, shown in grids.items() %}<h2>{{ part }}</h2><div class="grid">
{% for image, label, jpeg in shown %}<figure><img alt="" src="data:image/jpeg;base64,{{ jpeg }}">
<figcaption><b>{{ label|short }}</b><br>{{ image|short }}</figcaption></figure>
{% endfor %}</div>
{% endfor %}
{% for name, lines in lists.items() %}<h2>{{ name }}</h2>
<p{% if lines %} class="bad"{% endif %}>{{ lines|length or "none" }}</p><ul>
{% for line in lines[:most] %}<li>{{ line|short }}</li>
{% endfor %}</ul>
{% endfor %}
</body></html>
"""


class Look(NamedTuple):
    """What the page shows of one decoded image."""

    at: int
    problem: str = ""
    size: tuple[int, int] = (0, 0)
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
    good = {at: look for at, look in looks.items() if not look.problem}
    every = {"all": np.arange(len(found)), **parts}
    by_class = np.array([count_labels(found, at) for at in every.values()]).T.tolist()
    counts = {"images": [len(at) for at in every.values()]}
    counts |= dict(zip(found.classes, by_class, strict=True))
    sizes = Counter(f"{look.size[0]} x {look.size[1]}" for look in good.values()).most_common()
    labels = {part: found.labels[at] for part, at in parts.items()}
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["short"] = _short
    page = environment.from_string(PAGE).render(
        title=f"Preview of {folder.resolve().name}",
        summary=f"{len(found):,} images, split with seed {seed}. {len(looks):,} of them were"
        f" sampled for images and sizes. {passed_over_text(found.passed_over)}",
        problem=problem,
        tables=[
            (
                "Images by part",
                ["", *every],
                [[name, *(f"{count:,}" for count in row)] for name, row in counts.items()],
            ),
            ("Sizes in pixels", ["width x height", "images"], sizes[:LINES]),
        ],
        grids={
            part: [
                (found.images[at], _label(found, at), good[at].thumbnail)
                for at in [at for at in images if at in good][:GRID]
            ]
            for part, images in sample.items()
        },
        lists={
            "What cannot be learned or measured": part_notes(found.classes, labels),
            "Unreadable images in the sample": [
                f"{found.images[at]}: {looks[at].problem}" for at in looks.keys() - good.keys()
            ],
        },
        most=LINES,
    )
    write_atomic(output, page.encode())
    numbers = {"images": len(found), "sampled": len(looks), "unreadable": len(looks) - len(good)}
    return {"output": os.fspath(output), **numbers}


def _short(text: object) -> str:
    """Return an untrusted text for the page, at most 300 characters."""
    line = printable(str(text))
    return line if len(line) <= 300 else f"{line[:300]}..."


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
    jobs = [
        (at, found.sources[at], None if array is None else np.asarray(array[at])) for at in chosen
    ]
    work = partial(_look_at, folder=os.fspath(found.folder), kind=found.kind)
    looks: dict[int, Look] = {}
    with tqdm(total=len(jobs), desc="preview", unit=" images", disable=not progress or None) as bar:
        for some in map_in_processes(work, jobs, BATCH, num_workers):
            looks |= {look.at: look for look in some}
            bar.update(len(some))
    return {at: looks[at] for at in chosen}


def _look_at(job: tuple[int, str, np.ndarray | None], *, folder: str, kind: str) -> Look:
    at, source, pixels = job
    path = os.path.join(folder, source)  # noqa: PTH118 (as in the error texts)
    try:
        if pixels is None:
            data = sources.read_source(folder, kind, source)
            pixels = sources.decode_source(data, kind, path, 3)
    except DataError as error:
        return Look(at, text_without_path(error, path))
    height, width = pixels.shape[:2]
    small = Image.fromarray(sources.to_channels(pixels, 3))
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    jpeg = io.BytesIO()
    small.save(jpeg, "JPEG", quality=80)
    return Look(at, "", (width, height), base64.b64encode(jpeg.getvalue()).decode())


def _label(found: Catalog, at: int) -> str:
    if found.task == "classes":
        return found.classes[found.labels[at]]
    marks = {1: "", UNCERTAIN: "?"}
    row = zip(found.classes, found.labels[at].tolist(), strict=True)
    return ", ".join(f"{name}{marks[code]}" for name, code in row if code in marks) or "no finding"
