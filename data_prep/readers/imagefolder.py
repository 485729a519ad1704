"""Read images in a folder per class.

The folders are `train/cat/1.jpg`, `train/dog/2.jpg`, `val/cat/…`, or `cat/1.jpg` without parts.
With a class pattern the class is in the path of an image, as in `train/cat.1.jpg`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from data_prep import dicom
from data_prep.catalog import Catalog, ending, passed_over_text
from data_prep.errors import DataError
from data_prep.image_decoding import IMAGE_EXTENSIONS
from data_prep.readers.class_folders import first_by_kind, leave_out, refuse_copies, refuse_kinds
from data_prep.readers.path_safety import UNSAFE_PATH, check_link, follows_links, same_form
from data_prep.split import PARTS

#: The parts by the names of their folders, in lower case.
PART_FOLDERS = (
    dict.fromkeys(("train", "training", "seg_train", "tr"), 0)
    | dict.fromkeys(("val", "valid", "validation", "dev"), 1)
    | dict.fromkeys(("test", "testing", "seg_test", "seg_pred"), 2)
)
#: These names are parts only next to a longer name, because a class may have them too.
SHORT_NAMES = {"tr", "dev"}
#: A folder of this name without classes has images without labels.
UNLABELLED = "seg_pred"


@dataclass
class _Search:
    """The options of a search in a data folder, and the folders that it has met."""

    folder: Path
    exclude: frozenset[str]
    follow_links: bool
    excluded: set[str] = field(default_factory=set)
    opened: dict[tuple[int, int], str] = field(default_factory=dict)
    """The opened folders by device and inode."""


def catalog(
    folder: Path,
    group: str | None = None,
    class_pattern: str | None = None,
    exclude: Iterable[str] = (),
    links: str = "refuse",
) -> Catalog:
    """List the images of a folder of classes.

    `group` is a regular expression; the text it finds in an image's path is the group. The group
    `dicom:PatientID` is the patient in the header. `class_pattern` finds the class in the path
    likewise. Folders with a name in `exclude` are ignored. `links` is `refuse` or `follow`, for
    links that lead out of the folder. The classes are the names of the folders of train, sorted;
    the images come in the order of names.
    """
    search = _Search(folder, frozenset(exclude), follows_links(links))
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: unpack an archive")
    if class_pattern is None:
        found = _folder_catalog(search, group)
    else:
        found = _with_groups(_pattern_catalog(search, class_pattern), group)
    if unknown := sorted(search.exclude - search.excluded):
        raise DataError(f"{folder}: exclude names '{unknown[0]}', but no folder has this name")
    return found


def _folder_catalog(search: _Search, group: str | None) -> Catalog:
    folder, top = search.folder, _folders(search, "")
    classes: list[str] = []
    images: list[str] = []
    labels: list[int] = []
    parts: list[int] = []
    kinds: list[list[dict[str, int]]] = []
    passed_over: Counter[str] = Counter()
    for part, (home, places) in sorted((_parts(search, top) or {0: ("", top)}).items()):
        name = Path(home).name
        if not places:
            fix = ". If the class is in the images' names, find it with --class-pattern"
            if part:
                fix = f". If its images have no labels, {leave_out(name)}"
            raise DataError(f"{folder / home}: contains no folder; it needs one per class{fix}")
        classes = classes or [same_form(Path(place).name) for place in places]
        kinds.append([])
        for place in places:
            if (label := same_form(Path(place).name)) not in classes:
                raise DataError(
                    f"{folder / place}: a class without training images; the classes are"
                    f" {', '.join(classes[:20])}. If {name} has no folder per class,"
                    f" {leave_out(name)}"
                )
            other: Counter[str] = Counter()
            found = _images(search, place, other)
            if not found and part == 0:
                seen = f" ({passed_over_text(other)})" if other else ""
                raise DataError(
                    f"{folder / place}: no image in this class's folder{seen}; add images, or"
                    f" {leave_out(label)}"
                )
            passed_over += other
            kinds[-1].append(first_by_kind(place, found, len(images)))
            images += found
            labels += [classes.index(label)] * len(found)
            parts += [part] * len(found)
        if part not in parts[-1:]:
            raise DataError(f"{folder / home}: no image in it; add images, or {leave_out(name)}")
    made = _with_groups(_listed(folder, classes, images, labels, parts, passed_over), group)
    refuse_copies(made, kinds[0])
    for same in kinds:
        refuse_kinds(made, same)
    return made


def _pattern_catalog(search: _Search, pattern: str) -> Catalog:
    """List all images of each part, or of the folder, with the class in the path."""
    images: list[str] = []
    parts: list[int] = []
    passed_over: Counter[str] = Counter()
    top = _folders(search, "")
    for part, (home, _) in sorted((_parts(search, top) or {0: ("", top)}).items()):
        found = _images(search, home, passed_over)
        images += found
        parts += [part] * len(found)
    names = _texts(search.folder, images, pattern, "class_pattern")
    classes = sorted({name for name, part in zip(names, parts, strict=True) if part == 0})
    if not classes:
        raise DataError(f"{search.folder}: no image in it; add images, or name another folder")
    for image, name in zip(images, names, strict=True):
        if name not in classes:
            raise DataError(f"{search.folder / image}: {name!r} is a class without training images")
    labels = [classes.index(name) for name in names]
    return _listed(search.folder, classes, images, labels, parts, passed_over)


def _listed(
    folder: Path,
    classes: Sequence[str],
    images: list[str],
    labels: list[int],
    parts: list[int],
    passed_over: Counter[str],
) -> Catalog:
    published = np.array(parts, dtype=np.int8) if any(parts) else None
    values = np.array(labels, dtype=np.int64)
    return Catalog(
        folder, images, images, tuple(classes), values, None, published, passed_over=passed_over
    )


def _parts(search: _Search, top: Sequence[str]) -> dict[int, tuple[str, list[str]]]:
    """Return the folder of each part and its class folders; two folders for a part are an error."""
    named = {place: Path(place).name.lower() for place in top}
    if len(top) > 1 and not PART_FOLDERS.keys() & {*named.values()}:
        # All names may begin alike, as asl_alphabet_train and asl_alphabet_test.
        alike = os.path.commonprefix([*named.values()])  # noqa: RUF071 (names, not paths)
        start = re.match("(.*[_ -])?", alike)
        named = {place: name.removeprefix(start[0]) for place, name in named.items() if start}
    named = {place: name for place, name in named.items() if name in PART_FOLDERS}
    found: dict[int, tuple[str, list[str]]] = {}
    if SHORT_NAMES.issuperset(named.values()):
        return found
    for place, name in named.items():
        classes, part = _folders(search, place), PART_FOLDERS[name]
        if not classes and name == UNLABELLED:
            continue
        if part in found:
            raise DataError(
                f"{search.folder}: two folders for the part {PARTS[part]}; keep one, or"
                f" {leave_out(Path(place).name)}"
            )
        found[part] = place, classes
    if 0 not in found:
        listed = " and ".join(Path(place).name for place in named)
        raise DataError(f"{search.folder}: {listed} but no train; name the folder above it")
    return found


def _folders(search: _Search, place: str) -> list[str]:
    """Return the folders in a folder, or in its only folder if both have the same name."""
    folders, images = _open(search, place, Counter())
    name = Path(place).name or search.folder.absolute().name
    while len(folders) == 1 and not images and Path(folders[0]).name.lower() == name.lower():
        folders, images = _open(search, folders[0], Counter())
    return folders


def _images(search: _Search, place: str, passed_over: Counter[str]) -> list[str]:
    """Return the images in a class's folder, at any depth; count all other files by ending."""
    found: list[str] = []
    waiting = [place]
    while waiting:
        folders, images = _open(search, waiting.pop(), passed_over)
        found += images
        waiting += folders
    return sorted(found)


def _open(search: _Search, place: str, passed_over: Counter[str]) -> tuple[list[str], list[str]]:
    """Return the paths, within the data folder, of the folders and images in a folder.

    All other files are counted by ending. Each folder is opened once, so no link can lead in
    circles or multiply the images.
    """
    path = search.folder / place
    check_link(search.folder, place, search.follow_links)
    folders, images = [], []
    try:
        found = path.stat()
        first = search.opened.setdefault((found.st_dev, found.st_ino), place)
        if first != place:
            raise DataError(
                f"{path}: a link to a folder that is read already, as {search.folder / first};"
                " remove one of the two, or the circle of links"
            )
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith((".", "__MACOSX")):
                    continue
                inner = f"{place}/{entry.name}".removeprefix("/")
                if entry.name.lower().endswith(IMAGE_EXTENSIONS):
                    images.append(_checked_image(search, inner, entry.is_symlink()))
                elif (entry.is_symlink() and not Path(entry.path).exists()) or entry.is_dir():
                    if entry.name in search.exclude:
                        search.excluded.add(entry.name)
                    else:
                        folders.append(inner)
                else:
                    passed_over[ending(inner)] += 1
    except OSError as error:
        fix = "; fetch what the link leads to, or remove it" if path.is_symlink() else ""
        raise DataError(f"{path}: cannot be read ({error.strerror}){fix}") from None
    return sorted(folders), images


def _checked_image(search: _Search, path: str, is_link: bool) -> str:
    if UNSAFE_PATH.search(path):
        raise DataError(
            f"{search.folder / path}: rename it; control characters, a \\ and bytes"
            " outside UTF-8 are not allowed in a list of images"
        )
    if is_link:
        check_link(search.folder, path, search.follow_links)
    return path


def _with_groups(catalog: Catalog, pattern: str | None) -> Catalog:
    if pattern is None:
        return catalog
    if pattern == dicom.PATIENT_GROUP:
        return replace(catalog, groups=dicom.patients(catalog.folder, catalog.sources))
    groups = _texts(catalog.folder, catalog.images, pattern, "group")
    return replace(catalog, groups=groups)


def _texts(folder: Path, images: Sequence[str], pattern: str, option: str) -> list[str]:
    """Return the text that a regular expression finds in each path."""
    try:
        finds = re.compile(pattern).search
    except re.error as error:
        raise DataError(f"{option} {pattern!r} is not a regular expression ({error})") from None
    texts = []
    for image in images:
        found = finds(image)
        if found is None or not found[0]:
            raise DataError(
                f"{folder / image}: no {pattern!r} in the path; fix the pattern of {option}"
            )
        texts.append(found[0])
    return texts
