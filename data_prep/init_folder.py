"""Write the files that a published data set needs: `table.toml` and a recipe."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_prep.catalog import Catalog
from data_prep.errors import DataError, count_text, printable
from data_prep.files import write_atomic
from data_prep.layouts import Recognised, image_files, recognise
from data_prep.readers import load_catalog
from data_prep.readers.column_mapping import MAPPING_FILE
from data_prep.readers.path_safety import is_utf8
from data_prep.split import patients_in_paths

RECIPE_FILE = "recipe.toml"

RECIPE = """\
# Written by data-prep init; docs/recipes.md explains the keys.
[data]
reader = "{reader}"
folder = {folder}
image_size = 264
crop = 224
color_mode = "{colour}"

[model]
network = "densenet121"

[train]
task = "{task}"
"""


def init_folder(
    folder: str | os.PathLike[str], output: str | os.PathLike[str] | None = None, **options: Any
) -> list[str]:
    """Recognise the layout of a folder, write its mapping and recipe, and return what to print."""
    folder, to = Path(folder), Path(output or folder)
    for name in (MAPPING_FILE, RECIPE_FILE):
        if os.path.lexists(to / name):
            raise DataError(f"{to / name} exists: use it, or remove it and run again")
    recognised = recognise(folder, options)
    given = "".join(f" {word}" for word in _words(options))
    options |= {"table": recognised.mapping} if recognised.mapping else {}
    found, _ = load_catalog(recognised.reader, folder, **options)
    home = folder.resolve()
    beside = home.parent if output is None else to.resolve()
    small = beside / f"{home.name}-264"
    if not is_utf8(small.name):
        raise DataError(f"{folder}: a name that is not UTF-8; rename the folder")
    files = {
        RECIPE_FILE: RECIPE.format(
            reader=recognised.reader,
            folder=_toml(small.name if output else f"../{small.name}"),
            colour="rgb" if recognised.rgb else "grayscale",
            task="multilabel" if found.task == "findings" else "multiclass",
        )
    }
    if recognised.mapping:
        lines = [f"{key} = {_toml(value)}\n" for key, value in recognised.mapping.items()]
        note = f"# {printable(recognised.layout)}; docs/your-images.md explains the keys.\n"
        files = {MAPPING_FILE: note + "".join(lines)} | files
    try:
        to.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_atomic(to / name, text.encode())
    except OSError as error:
        raise DataError(
            f"{to}: cannot be written ({error.strerror}); name another folder for"
            f" {' and '.join(files)} with --output"
        ) from None
    if output is not None and recognised.mapping:
        given += f" --table {shlex.quote(os.fspath(to / MAPPING_FILE))}"
    how = " --rgb --resize-mode center-crop" if recognised.rgb else ""
    source, target, recipe = (
        shlex.quote(os.fspath(path)) for path in (folder, _relative(small), to / RECIPE_FILE)
    )
    return [
        f"{folder}: {_assumed(folder, recognised, found)}",
        f"wrote {' and '.join(files)} in {to}; edit what does not fit",
        "next, run:",
        f"  data-prep resize {source} {target} --reader {recognised.reader}{how}{given}",
        f"  rosetta run --recipe {recipe}",
    ]


def _words(options: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line that give these options."""
    words = []
    for name, value in options.items():
        for text in [value] if isinstance(value, str) else value:
            words += [f"--{name.replace('_', '-')}", shlex.quote(text)]
    return words


def _assumed(folder: Path, recognised: Recognised, found: Catalog) -> str:
    kind = ("finding", "findings") if found.task == "findings" else ("class", "classes")
    names = ", ".join(found.classes[:20]) + (", ..." if len(found.classes) > 20 else "")
    groups = "every image is a group"
    if found.groups is None and (named := patients_in_paths(found.sources)):
        groups += f" although the paths name patients: add --group '{named[0]}' to the command"
    elif found.groups is not None:
        groups = count_text(set(found.groups), "group (patient)", "groups (patients)")
    other = sum(1 for _ in image_files(folder)) - len(found) if recognised.mapping else 0
    unlisted = f", image files without a row: {other:,}" if other > 0 else ""
    parts = "a new split" if found.parts is None else "the published split"
    return (
        f"{recognised.layout}, {count_text(found.images, 'image', 'images')},"
        f" {count_text(found.classes, *kind)} ({names}), {groups}, {parts}{unlisted}"
    )


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {_toml(inner)}' for key, inner in value.items())}}}"
    # JSON's texts, lists and truth values are TOML's, except for one letter.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
