"""Write one HTML page that shows a data set before training: a sample of its images, and counts."""

from __future__ import annotations

import base64
import io
import os
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
from PIL import Image

from data_prep.catalog import (
    Catalog,
    count_labels,
    label_text,
    passed_over_text,
    split_catalog,
    split_notes,
)
from data_prep.errors import DataError, printable
from data_prep.files import map_in_processes, with_progress, write_atomic
from data_prep.image_decoding import decode, to_channels
from data_prep.prepared_folder import text_without_path
from data_prep.readers import load_catalog
from data_prep.readers.catalog_reader import read_source
from data_prep.split import SPLITS

BATCH = 8
#: Images of each split in the grid, the side of one in pixels, and the lines of a list.
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
<p class="bad">{{ problem|short }}</p>
{% for name, header, rows in tables %}<h2>{{ name }}</h2><table><tr>
{%- for cell in header %}<th>{{ cell }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell|short }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% endfor %}
{% for split, shown in grids.items() %}<h2>{{ split }}</h2><div class="grid">
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
    """What the page shows of one decoded image; `thumbnail` is a JPEG file in Base64."""

    at: int
    problem: str = ""
    size: str = ""
    thumbnail: str = ""


def preview_folder(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    reader: str | None = None,
    seed: int = 0,
    num_images: int = 999,
    num_workers: int | None = None,
    progress: bool = True,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the page; return `output`, and numbers of `images`, `sampled` and `unreadable`."""
    folder = Path(folder)
    output = Path(output or f"{os.path.realpath(folder)}-preview.html")
    if output.suffix.lower() not in (".html", ".htm"):
        raise DataError(f"{output}: the page is an HTML file; name a file that ends in .html")
    found, array = load_catalog(reader, folder, **(options or {}))
    splits, problem = _splits(found, seed)
    rng = np.random.Generator(np.random.PCG64(seed))
    each = num_images // len(SPLITS)
    sample = {split: rng.permutation(images)[:each].tolist() for split, images in splits.items()}
    jobs = [
        (at, found.sources[at], None if array is None else np.asarray(array[at]))
        for images in sample.values()
        for at in images
    ]
    work = map_in_processes(partial(_look_at, folder=found.folder), jobs, BATCH, num_workers)
    looks = [look for some in with_progress(work, "preview", len(jobs), progress) for look in some]
    good = {look.at: look for look in looks if not look.problem}
    sizes = Counter(look.size for look in good.values())
    labels = {split: found.labels[at] for split, at in splits.items()}
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["short"] = _short
    page = environment.from_string(PAGE).render(
        title=f"Preview of {folder.resolve().name}",
        summary=f"{len(found):,} images, split with seed {seed}. {len(looks):,} of them were"
        f" sampled for images and sizes. {passed_over_text(found.passed_over)}",
        problem=problem,
        tables=[
            ("Images by split", ["", "all", *splits], _counts(found, splits)),
            ("Sizes in pixels", ["width x height", "images"], sorted(sizes.items())[:LINES]),
        ],
        grids={
            split: [
                (found.images[at], label_text(found, at), good[at].thumbnail)
                for at in [at for at in images if at in good][:GRID]
            ]
            for split, images in sample.items()
        },
        lists={
            "What cannot be learned or measured": split_notes(found.classes, labels),
            "Unreadable images in the sample": sorted(
                f"{found.images[look.at]}: {look.problem}" for look in looks if look.problem
            ),
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


def _splits(found: Catalog, seed: int) -> tuple[dict[str, np.ndarray], str]:
    """Return the indices of each split; if it cannot be split, the published splits and why."""
    try:
        return split_catalog(found, seed=seed), ""
    except DataError as error:
        published = np.zeros(len(found), np.int8) if found.splits is None else found.splits
        splits = {split: np.flatnonzero(published == at) for at, split in enumerate(SPLITS)}
        return splits, f"Training cannot use these splits: {error}"


def _counts(found: Catalog, splits: Mapping[str, np.ndarray]) -> list[list[str]]:
    """Return the rows of images, and of each class or finding, in all splits and in each."""
    every = [np.arange(len(found)), *splits.values()]
    numbers = zip(*([len(at), *count_labels(found, at)] for at in every), strict=True)
    names = "images", *found.classes
    return [[name, *map("{:,}".format, row)] for name, row in zip(names, numbers, strict=True)]


def _look_at(job: tuple[int, str, np.ndarray | None], *, folder: Path) -> Look:
    at, source, pixels = job
    path = os.path.join(folder, source)  # noqa: PTH118 (as in the error texts)
    try:
        if pixels is None:
            pixels = decode(read_source(folder, source), path, 3)
    except DataError as error:
        return Look(at, text_without_path(error, path))
    height, width = pixels.shape[:2]
    small = Image.fromarray(to_channels(pixels, 3))
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    jpeg = io.BytesIO()
    small.save(jpeg, "JPEG", quality=80)
    return Look(at, "", f"{width} x {height}", base64.b64encode(jpeg.getvalue()).decode())
