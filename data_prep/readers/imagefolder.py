"""Read images in a folder per class: `train/cat/1.jpg`, `val/cat/…`, or `cat/1.jpg` without splits.

With a class pattern the class is in the path of an image, as in `train/cat.1.jpg`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from data_prep.catalog import Catalog, ending_of, passed_over_text
from data_prep.errors import DataError
from data_prep.image_decoding import IMAGE_EXTENSIONS
from data_prep.readers.path_safety import UNSAFE_PATH, same_form
from data_prep.split import SPLITS

#: The names of the folders of the splits; all may have a word before, as seg_train and seg_test.
SPLIT_FOLDER = re.compile(
    "(?i)(.*[_ -])?(?:(train|training)|(val|valid|validation|dev)|(test|testing|pred))"
)

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

    `group` and `class_pattern` are regular expressions that find the group and the class in an
    image's path. Folders with a name in `exclude` are ignored.
    """
    search = _Search(folder, frozenset(exclude))
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder: unpack an archive")
    top = _folders(search, "")
    images: list[str] = []
    labels: list[str] = []
    splits: list[int] = []
    inner: list[dict[str, dict[str, int]]] = []
    for split, (home, places) in sorted((_splits(search, top) or {0: ("", top)}).items()):
        start = len(images)
        if class_pattern is None:
            inner.append(_list_classes(search, home, places, split, images, labels))
        else:
            images += _images(search, home)
            labels += _texts(folder, images[start:], class_pattern, "class_pattern")
        splits += [split] * (len(images) - start)
        if len(images) == start:
            name = Path(home).name
            raise DataError(f"{folder / home}: no image in it; add images, or {_leave_out(name)}")
    classes = sorted({label for label, split in zip(labels, splits, strict=True) if split == 0})
    place = {name: at for at, name in enumerate(classes)}
    for image, label in zip(images, labels, strict=True):
        if label not in place:
            hint = f"if its folder has no classes, {_leave_out(image.partition('/')[0])}"
            what = f"{label!r} is a class without training images"
            raise DataError(f"{folder / image}: {what}; {hint}")
    found = Catalog(
        folder,
        images,
        images,
        tuple(classes),
        np.array([place[label] for label in labels], dtype=np.int64),
        groups=None if group is None else _texts(folder, images, group, "group"),
        splits=np.array(splits, dtype=np.int8) if any(splits) else None,
        passed_over=search.passed_over,
    )
    for folders in inner:
        _refuse_kinds(found, folders)
    if unknown := sorted(search.exclude - search.excluded):
        raise DataError(f"{folder}: exclude names '{unknown[0]}', but no folder has this name")
    return found


def _leave_out(name: str) -> str:
    return f'leave the folder out with --exclude {name} (in a recipe: exclude = ["{name}"])'


def _list_classes(
    search: _Search,
    home: str,
    places: Sequence[str],
    split: int,
    images: list[str],
    labels: list[str],
) -> dict[str, dict[str, int]]:
    """Add the images of a split; return the first image of each folder within each class."""
    folder = search.folder
    if not places:
        fix = ". If the class is in the images' names, find it with --class-pattern"
        if split:
            fix = f". If its images have no labels, {_leave_out(Path(home).name)}"
        raise DataError(f"{folder / home}: contains no folder; it needs one per class{fix}")
    inner: dict[str, dict[str, int]] = {}
    for place in places:
        label = same_form(Path(place).name)
        before = search.passed_over.copy()
        here = _images(search, place)
        if not here and split == 0:
            seen = passed_over_text(search.passed_over - before)
            what = f"no image in this class's folder{f' ({seen})' * bool(seen)}"
            raise DataError(f"{folder / place}: {what}; add images, or {_leave_out(label)}")
        first = inner.setdefault(label, {})
        for at, image in enumerate(here, len(images)):
            within, slash, _ = image[len(place) + 1 :].partition("/")
            first.setdefault(within if slash else "", at)
        images += here
        labels += [label] * len(here)
    return inner


def _refuse_kinds(found: Catalog, classes: dict[str, dict[str, int]]) -> None:
    """Raise `DataError` if the folders of a split are copies, masks or patients instead of classes.

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
        f" ({', '.join(sorted(first.keys() - {''})[:5])}). If one has masks,"
        f" {_leave_out(max(first))}; if they are patients, find them with --group; if they are the"
        f" classes, find them with --class-pattern '{LAST_FOLDER}'"
    )


def _splits(search: _Search, top: Sequence[str]) -> dict[int, tuple[str, list[str]]]:
    """Return each split's folder and class folders; two folders for a split are an error."""
    named = {place: SPLIT_FOLDER.fullmatch(Path(place).name) for place in top}
    words = {match[1] if match else None for match in named.values()}
    if len(top) == 1 or None in words or len(words) > 1:  # a class may be called bullet_train
        named = {place: match for place, match in named.items() if match and not match[1]}
    found: dict[int, tuple[str, list[str]]] = {}
    for place, match in named.items():
        assert match is not None and match.lastindex is not None
        classes, split = _folders(search, place), match.lastindex - 2
        if not classes and match[4] == "pred":  # images without labels
            continue
        if split in found:
            where = f"{search.folder}: two folders for the split {SPLITS[split]}"
            raise DataError(f"{where}; keep one, or {_leave_out(Path(place).name)}")
        found[split] = place, classes
    if found and 0 not in found:
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
    """Return a folder's folders and images, and the endings of other files; open each only once."""
    path = search.folder / place
    folders, images, other = [], [], []
    try:
        first = search.opened.setdefault(os.path.realpath(path), place)
        if first != place:
            twin = search.folder / first
            raise DataError(f"{path}: a link to a folder that is read already, as {twin}")
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith((".", "__MACOSX")):
                    continue
                inner = f"{place}/{entry.name}".removeprefix("/")
                if entry.name.lower().endswith(IMAGE_EXTENSIONS):
                    if UNSAFE_PATH.search(inner):
                        why = "has control characters, a \\ or bytes outside UTF-8; rename it"
                        raise DataError(f"{search.folder / inner}: {why}")
                    images.append(inner)
                elif (entry.is_symlink() and not Path(entry.path).exists()) or entry.is_dir():
                    if entry.name in search.exclude:
                        search.excluded.add(entry.name)
                    else:
                        folders.append(inner)
                else:
                    other.append(ending_of(inner))
    except OSError as error:
        fix = "; fetch what the link leads to, or remove it" if path.is_symlink() else ""
        raise DataError(f"{path}: cannot be read ({error.strerror}){fix}") from None
    return sorted(folders), images, other


def _texts(folder: Path, images: Sequence[str], pattern: str, option: str) -> list[str]:
    """Return the text that a regular expression finds in each path."""
    try:
        finds = re.compile(pattern).search
    except re.error as error:
        raise DataError(f"{option} {pattern!r} is not a regular expression ({error})") from None
    texts = [found[0] if (found := finds(image)) else "" for image in images]
    if "" in texts:
        where = folder / images[texts.index("")]
        raise DataError(f"{where}: no {pattern!r} in the path; fix the pattern of {option}")
    return texts
