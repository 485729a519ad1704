"""Recognise the layout of a data set, and write `table.toml` and a recipe for it.

The columns of its label file tell which published data set a folder contains. Any other CSV file is
the table if one of its columns names images that are there.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from data_prep.catalog import Catalog
from data_prep.errors import DataError, count_text, printable
from data_prep.files import write_atomic
from data_prep.image_decoding import IMAGE_EXTENSIONS
from data_prep.readers import load_catalog, path_safety, table
from data_prep.readers.column_mapping import MAPPING_FILE
from data_prep.readers.csv_file import CsvFile
from data_prep.readers.nih import LABEL_FILES
from data_prep.readers.path_safety import bare_name, near_file, same_form
from data_prep.split import SPLITS, patients_in_paths

#: Label files are searched in the folder and one level below.
LABEL_PATTERNS = ("*.csv", "*.csv.gz", "*/*.csv", "*/*.csv.gz")

#: How columns of patients are called, without signs and in lower case.
PATIENT_COLUMNS = {"patient", "patientid", "subject", "subjectid", "patientnumber", "lesionid"}

#: Columns of 0 and 1 that are not findings.
NO_FINDINGS = {"sex", "gender", "male", "female", "age", "fold", "split", "id", "index"}


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
    words = [
        f" --{name.replace('_', '-')} {shlex.quote(text)}"
        for name, value in options.items()
        for text in ([value] if isinstance(value, str) else value)
    ]
    given = "".join(words)
    options |= {"table": recognised.mapping} if recognised.mapping else {}
    found, _ = load_catalog(recognised.reader, folder, **options)
    home = folder.resolve()
    beside = home.parent if output is None else to.resolve()
    small = beside / f"{home.name}-264"
    if not path_safety.is_utf8(small.name):
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
        fix = "name another folder for the files with --output"
        raise DataError(f"{to}: cannot be written ({error.strerror}); {fix}") from None
    if output is not None and recognised.mapping:
        given += f" --table {shlex.quote(os.fspath(to / MAPPING_FILE))}"
    how = " --rgb --resize-mode center-crop" if recognised.rgb else ""
    small = small.relative_to(Path.cwd()) if small.is_relative_to(Path.cwd()) else small
    words = [shlex.quote(os.fspath(path)) for path in (folder, small, to / RECIPE_FILE)]
    source, target, recipe = words
    return [
        f"{folder}: {_assumed(folder, recognised, found)}",
        f"wrote {' and '.join(files)} in {to}; edit what does not fit",
        "next, run:",
        f"  data-prep resize {source} {target} --reader {recognised.reader}{how}{given}",
        f"  rosetta run --recipe {recipe}",
    ]


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
    splits = "a new split" if found.splits is None else "the published split"
    return (
        f"{recognised.layout}, {count_text(found.images, 'image', 'images')},"
        f" {count_text(found.classes, *kind)} ({names}), {groups}, {splits}{unlisted}"
    )


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key} = {_toml(inner)}' for key, inner in value.items())}}}"
    # JSON's texts, lists and truth values are TOML's, except for one letter.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


class Recognised(NamedTuple):
    """The reader of a folder; for the reader `table` also the mapping of its columns."""

    layout: str
    reader: str
    mapping: dict[str, Any]
    rgb: bool


def recognise(folder: Path, options: Mapping[str, Any]) -> Recognised:
    """Return the layout of a folder; `DataError`, with what to write, if it is unknown."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: name the folder with the images and labels")
    if options:
        return _class_folders(folder, options)
    tables, damaged = _tables(folder)
    if known := _published(folder, tables) or _table(folder, tables):
        return known
    try:
        return _class_folders(folder, options)
    except DataError as error:
        reasons = [_near_table(folder, tables), str(error).removeprefix(f"{folder}: "), *damaged]
        raise DataError(
            f"{folder}: the layout is unknown ({'; '.join(filter(None, reasons))}); put the images"
            f" in a folder per class, or describe a CSV file in {folder / 'table.toml'}, with lines"
            " such as file = 'labels.csv', path = 'image', class = 'label'"
        ) from None


def _tables(folder: Path) -> tuple[dict[str, CsvFile], list[str]]:
    """Return the CSV files of a folder by name, and why others cannot be read."""
    found: dict[str, CsvFile] = {}
    damaged = []
    for file in sorted(file for pattern in LABEL_PATTERNS for file in folder.glob(pattern)):
        if file.name.startswith(".") or file.parent.name == "__MACOSX":
            continue
        try:
            found[file.relative_to(folder).as_posix()] = CsvFile(file)
        except DataError as error:
            damaged.append(str(error))
    return found, damaged


def _published(folder: Path, tables: dict[str, CsvFile]) -> Recognised | None:
    if any((folder / name).is_file() for name in LABEL_FILES):
        return Recognised("the NIH's ChestX-ray14", "nih", {}, rgb=False)
    known = tomllib.loads(Path(__file__).with_name("layouts.toml").read_text(encoding="utf-8"))
    for layout in known["layout"]:
        names = [at for at, rows in tables.items() if {*layout["columns"]} <= {*rows.header}]
        if names:
            mapping = _mapping(folder, layout, names, tables)
            return Recognised(layout["name"], "table", mapping, layout.get("rgb", False))
    return None


def _table(folder: Path, tables: dict[str, CsvFile]) -> Recognised | None:
    """Return the first CSV file one of whose columns names images, each once, with labels.

    The class is the only other column, or the one that is called so. Otherwise the findings are the
    columns of 1, 0, -1 and blank cells.
    """
    names = [same_form(name) for _, name in image_files(folder)]
    there = {text for name in names for text in (name, Path(name).stem)}
    for file, rows in tables.items():
        for column in _possible_paths(rows):
            texts = rows.column(column).str.replace("\\", "/", regex=False)
            named = {same_form(text) for text in texts.str.rpartition("/")[2]}
            if not named <= there or texts.duplicated().any():
                continue
            others = [name for name in rows.header if name not in (column, "")]
            usual = [name for name in others if name.lower() in ("class", "label")] or others
            findings = [name for name in others if _is_finding(rows, name)]
            if len(usual) > 1 and not findings:
                continue
            mapping = {"file": file} | _paths(folder, rows, f"{{{column}}}", several=False)
            mapping |= _group_keys(others, column, texts.tolist())
            if len(usual) == 1:
                what = f"{file} with classes in the column '{usual[0]}'"
                return Recognised(what, "table", mapping | {"class": usual[0]}, rgb=True)
            what = f"{file} with a column per finding"
            return Recognised(what, "table", mapping | {"findings": findings}, rgb=False)
    return None


def _possible_paths(rows: CsvFile) -> list[str]:
    """Return the columns that may name images, the longest texts first."""
    if rows.table.empty:
        return []
    names = [name for name in rows.header if name and not re.search("[{}:]", name)]
    names = [name for name in names if rows.header.count(name) == 1]
    return sorted(names, key=lambda name: -len(rows.column(name).iloc[0]))


def _group_keys(others: Sequence[str], column: str, paths: Sequence[str]) -> dict[str, str]:
    """Return the keys of the patient: a column called so, or what all paths name."""
    called = [name for name in others if re.sub("[^a-z]", "", name.lower()) in PATIENT_COLUMNS]
    if called:
        return {"group": called[0]}
    named = patients_in_paths(paths)
    return {} if named is None else {"group": column, "group_pattern": named[0]}


def _is_finding(rows: CsvFile, name: str) -> bool:
    if rows.header.count(name) > 1 or name.lower() in NO_FINDINGS:
        return False
    codes = {table.finding_code(text) for text in rows.column(name).unique()}
    return None not in codes and 1 in codes and len(codes) > 1


def _near_table(folder: Path, tables: Mapping[str, CsvFile]) -> str:
    """Return what keeps a column from naming the images, such as lost zeros, or ""."""
    names = sorted(name for _, name in image_files(folder))
    bare = {bare_name(name) for name in names}
    for file, rows in tables.items():
        for column in _possible_paths(rows):
            cells = rows.column(column)
            if {bare_name(text) for text in cells} <= bare:
                near = near_file(names, cells.iloc[0])
                return (
                    f"{cells.iloc[0]!r} in the column {column!r} of {file} is not an image: {near}"
                )
    return ""


def _class_folders(folder: Path, options: Mapping[str, Any]) -> Recognised:
    found, _ = load_catalog("imagefolder", folder, **options)
    if len(found.classes) < 2:
        raise DataError(f"{folder}: there is only one class; name the folder with the classes")
    layout = "a class in each path" if "class_pattern" in options else "a folder per class"
    return Recognised(layout, "imagefolder", {}, rgb=True)


def image_files(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield folder and name of each image file in a folder, at any depth, in the order of names."""
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(inner for inner in folders if not inner.startswith((".", "__MACOSX")))
        inside = Path(at).relative_to(folder).as_posix().removeprefix(".")
        for name in sorted(names):
            if name.lower().endswith(IMAGE_EXTENSIONS):
                yield inside, name


def _mapping(
    folder: Path, layout: dict[str, Any], names: list[str], tables: dict[str, CsvFile]
) -> dict[str, Any]:
    """Return the keys of `table.toml`, with the paths of the images as they are on the disk."""
    first, keys = tables[names[0]], layout["keys"]
    mapping: dict[str, Any] = {"file": _by_split(folder, names)}
    mapping |= keys | _paths(folder, first, keys["path"], len(names) > 1)
    if not {"findings", "class"} & mapping.keys():
        mapping["findings"] = [name for name in first.header if name not in layout["others"]]
    return mapping


def _by_split(folder: Path, names: list[str]) -> str | dict[str, str]:
    """Return the only name, or the name for each split; `DataError` if no split is in a name."""
    if len(names) == 1:
        return names[0]
    splits = {
        split: name for name in names for split in SPLITS if split[:3] in Path(name).name.lower()
    }
    if {*splits.values()} != {*names}:
        fix = "keep one of them, or one for each split"
        raise DataError(f"{folder}: {', '.join(names)} have the same columns; {fix}")
    return splits


def _paths(folder: Path, rows: CsvFile, pattern: str, several: bool) -> dict[str, str]:
    """Return `path` and `remove_prefix` by which the image of the first row is found."""
    path = "" if rows.table.empty else rows.pattern(pattern).iloc[0].replace("\\", "/")
    if path_safety.UNSAFE_PATH.search(path) or os.path.isfile(folder / path):  # noqa: PTH113
        return {"path": pattern}
    if prefix := path_safety.missing_prefix(folder, path):
        return {"path": pattern, "remove_prefix": prefix}
    place, _, name = path.rpartition("/")
    found = _file_called(folder, name, place) if "{" in pattern else None
    if found is None:
        raise DataError(f"{rows.where(0)}: the image {path} is nowhere in {folder}; add it there")
    inside, ending = found
    if inside != place:
        # The other images may be in folders that differ in the number at the end.
        inside = "**" if several else re.sub(r"[0-9]+(?=/|$)", "*", inside)
        pattern = f"{inside}/{pattern.rpartition('/')[2]}".lstrip("/")
    return {"path": pattern + ending}


def _file_called(folder: Path, name: str, place: str) -> tuple[str, str] | None:
    """Return folder and extension of an image file with this name, best of one in `place`."""
    name = same_form(name)
    found = [
        (inside, file[len(name) :])
        for inside, file in ((at, same_form(file)) for at, file in image_files(folder))
        if file.startswith(name) and file[len(name) :].lower() in ("", *IMAGE_EXTENSIONS)
    ]
    home = f"{place}/".lstrip("/")
    return min(found, key=lambda at: not f"{at[0]}/".startswith(home), default=None)
