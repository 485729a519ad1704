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

from data_prep.catalog import Catalog, ending, passed_over_text
from data_prep.errors import DataError
from data_prep.image_decoding import IMAGE_EXTENSIONS
from data_prep.readers.path_safety import UNSAFE_PATH, same_form
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

#: Finds the folder of an image.
LAST_FOLDER = "[^/]+(?=/[^/]+$)"


@dataclass
class _Search:
    """A search in a data folder: the folders to ignore, and those that it has met."""

    folder: Path
    exclude: frozenset[str]
    excluded: set[str] = field(default_factory=set)
    opened: dict[str, str] = field(default_factory=dict)
    """The opened folders by their real paths."""
    passed_over: Counter[str] = field(default_factory=Counter)


def catalog(
    folder: Path,
    group: str | None = None,
    class_pattern: str | None = None,
    exclude: Iterable[str] = (),
) -> Catalog:
    """List the images of a folder of classes.

    `group` is a regular expression; the text it finds in an image's path is the group.
    `class_pattern` finds the class in the path likewise. Folders with a name in `exclude` are
    ignored. The classes are the names of the folders of train, sorted; the images come in the order
    of names.
    """
    search = _Search(folder, frozenset(exclude))
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: unpack an archive")
    top = _folders(search, "")
    parts = sorted((_parts(search, top) or {0: ("", top)}).items())
    if class_pattern is None:
        listed, kinds = _folder_catalog(search, parts)
        found = _with_groups(listed, group)
        for classes in kinds:
            _refuse_kinds(found, classes)
    else:
        found = _with_groups(_pattern_catalog(search, parts, class_pattern), group)
    if unknown := sorted(search.exclude - search.excluded):
        raise DataError(f"{folder}: exclude names '{unknown[0]}', but no folder has this name")
    return found


def _leave_out(name: str) -> str:
    return f'leave the folder out with --exclude {name} (in a recipe: exclude = ["{name}"])'


def _folder_catalog(
    search: _Search, found: Sequence[tuple[int, tuple[str, list[str]]]]
) -> tuple[Catalog, list[dict[str, dict[str, int]]]]:
    """List the images; also, for each part, the first image in each folder of a class."""
    folder = search.folder
    kinds: list[dict[str, dict[str, int]]] = []
    classes: list[str] = []
    images: list[str] = []
    labels: list[int] = []
    parts: list[int] = []
    for part, (home, places) in found:
        name = Path(home).name
        if not places:
            fix = ". If the class is in the images' names, find it with --class-pattern"
            if part:
                fix = f". If its images have no labels, {_leave_out(name)}"
            raise DataError(f"{folder / home}: contains no folder; it needs one per class{fix}")
        classes = classes or [same_form(Path(place).name) for place in places]
        kinds.append({})
        for place in places:
            if (label := same_form(Path(place).name)) not in classes:
                raise DataError(
                    f"{folder / place}: a class without training images; the classes are"
                    f" {', '.join(classes[:20])}. If {name} has no folder per class,"
                    f" {_leave_out(name)}"
                )
            before = search.passed_over.copy()
            here = _images(search, place)
            if not here and part == 0:
                seen = passed_over_text(search.passed_over - before)
                raise DataError(
                    f"{folder / place}: no image in this class's folder{f' ({seen})' * bool(seen)};"
                    f" add images, or {_leave_out(label)}"
                )
            first: dict[str, int] = kinds[-1].setdefault(label, {})
            for at, image in enumerate(here, len(images)):
                inner, slash, _ = image[len(place) + 1 :].partition("/")
                first.setdefault(inner if slash else "", at)
            images += here
            labels += [classes.index(label)] * len(here)
            parts += [part] * len(here)
        if part not in parts[-1:]:
            raise DataError(f"{folder / home}: no image in it; add images, or {_leave_out(name)}")
    return _listed(search, classes, images, labels, parts), kinds


def _pattern_catalog(
    search: _Search, found: Sequence[tuple[int, tuple[str, list[str]]]], pattern: str
) -> Catalog:
    """List all images of each part, or of the folder, with the class in the path."""
    images: list[str] = []
    parts: list[int] = []
    for part, (home, _) in found:
        here = _images(search, home)
        images += here
        parts += [part] * len(here)
    names = _texts(search.folder, images, pattern, "class_pattern")
    classes = sorted({name for name, part in zip(names, parts, strict=True) if part == 0})
    if not classes:
        raise DataError(f"{search.folder}: no image in it; add images, or name another folder")
    for image, name in zip(images, names, strict=True):
        if name not in classes:
            raise DataError(f"{search.folder / image}: {name!r} is a class without training images")
    return _listed(search, classes, images, [classes.index(name) for name in names], parts)


def _listed(
    search: _Search, classes: Sequence[str], images: list[str], labels: list[int], parts: list[int]
) -> Catalog:
    return Catalog(
        search.folder,
        images,
        images,
        tuple(classes),
        np.array(labels, dtype=np.int64),
        parts=np.array(parts, dtype=np.int8) if any(parts) else None,
        passed_over=search.passed_over,
    )


def _refuse_kinds(found: Catalog, classes: dict[str, dict[str, int]]) -> None:
    """Raise `DataError` where the folders of a part are no classes, but copies, masks or patients.

    A class that contains only folders, one named as another class, has a copy of the images. Equal
    folders in all classes may be masks; they may also be patients, if each has other groups.
    """
    for own, inner in classes.items():
        if "" not in inner and (same := {*inner} & {*found.classes} - {own}):
            raise DataError(
                f"{found.folder}: {own} is a class and contains {min(same)}, which is another"
                f" class; if {own} has a copy of the images, {_leave_out(own)}"
            )
    first, *others = classes.values()
    if not others or len(first) < 2 or any(each.keys() != first.keys() for each in others):
        return
    groups = found.groups
    if groups is not None and all(
        len({groups[at] for at in each.values()}) == len(first) for each in (first, *others)
    ):
        return
    raise DataError(
        f"{found.path(first[max(first)])}: every class has images in the same folders"
        f" ({', '.join(sorted(first.keys() - {''})[:5])}). If one has no images to train on, such"
        f" as masks, {_leave_out(max(first))}; if the folders are patients, find them with --group;"
        " if they are the classes, name one folder above them, or find them with"
        f" --class-pattern '{LAST_FOLDER}'"
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
                f" {_leave_out(Path(place).name)}"
            )
        found[part] = place, classes
    if 0 not in found:
        listed = " and ".join(Path(place).name for place in named)
        raise DataError(f"{search.folder}: {listed} but no train; name the folder above it")
    return found


def _folders(search: _Search, place: str) -> list[str]:
    """Return the folders in a folder, or in its only folder if both have the same name."""
    folders, images, _ = _open(search, place)
    name = Path(place).name or search.folder.absolute().name
    while len(folders) == 1 and not images and Path(folders[0]).name.lower() == name.lower():
        folders, images, _ = _open(search, folders[0])
    return folders


def _images(search: _Search, place: str) -> list[str]:
    """Return the images in a class's folder, at any depth; count all other files by ending."""
    found: list[str] = []
    waiting = [place]
    while waiting:
        folders, images, other = _open(search, waiting.pop())
        found += images
        waiting += folders
        search.passed_over.update(other)
    return sorted(found)


def _open(search: _Search, place: str) -> tuple[list[str], list[str], list[str]]:
    """Return the paths of the folders and images in a folder, and the endings of other files.

    Each folder is opened under one path, so no link can lead in circles or multiply the images.
    """
    path = search.folder / place
    folders, images, other = [], [], []
    try:
        first = search.opened.setdefault(os.path.realpath(path), place)
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
                    if UNSAFE_PATH.search(inner):
                        raise DataError(
                            f"{search.folder / inner}: rename it; control characters, a \\ and"
                            " bytes outside UTF-8 are not allowed in a list of images"
                        )
                    images.append(inner)
                elif (entry.is_symlink() and not Path(entry.path).exists()) or entry.is_dir():
                    if entry.name in search.exclude:
                        search.excluded.add(entry.name)
                    else:
                        folders.append(inner)
                else:
                    other.append(ending(inner))
    except OSError as error:
        fix = "; fetch what the link leads to, or remove it" if path.is_symlink() else ""
        raise DataError(f"{path}: cannot be read ({error.strerror}){fix}") from None
    return sorted(folders), images, other


def _with_groups(found: Catalog, pattern: str | None) -> Catalog:
    if pattern is None:
        return found
    return replace(found, groups=_texts(found.folder, found.images, pattern, "group"))


def _texts(folder: Path, images: Sequence[str], pattern: str, option: str) -> list[str]:
    """Return the text that a regular expression finds in each path."""
    try:
        finds = re.compile(pattern).search
    except re.error as error:
        raise DataError(f"{option} {pattern!r} is not a regular expression ({error})") from None
    texts = [found[0] if (found := finds(image)) else "" for image in images]
    if "" in texts:
        raise DataError(
            f"{folder / images[texts.index('')]}: no {pattern!r} in the path; fix the pattern of"
            f" {option}"
        )
    return texts
