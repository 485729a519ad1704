"""Check that the folders in a data folder are the classes: no copies, masks or patients."""

from __future__ import annotations

from collections.abc import Sequence

from data_prep.catalog import Catalog
from data_prep.errors import DataError

#: Finds the folder of an image.
LAST_FOLDER = "[^/]+(?=/[^/]+$)"
FIND_CLASSES = f"find them with --class-pattern '{LAST_FOLDER}'"


def leave_out(name: str) -> str:
    """Return the advice to ignore folders of this name."""
    return f'leave the folder out with --exclude {name} (in a recipe: exclude = ["{name}"])'


def first_by_kind(place: str, images: Sequence[str], start: int) -> dict[str, int]:
    """Return the index of the first image in each folder of a class; the class's own is ""."""
    first: dict[str, int] = {}
    for at, image in enumerate(images, start):
        inner, slash, _ = image[len(place) + 1 :].partition("/")
        first.setdefault(inner if slash else "", at)
    return first


def refuse_copies(catalog: Catalog, classes: Sequence[dict[str, int]]) -> None:
    """Raise `DataError` for a class that contains only folders, one named as a class."""
    for own, inner in zip(catalog.classes, classes, strict=True):
        if "" not in inner and (same := {*inner} & {*catalog.classes} - {own}):
            raise DataError(
                f"{catalog.folder}: {own} is a class and contains {min(same)}, which is another"
                f" class; if {own} has a copy of the images, {leave_out(own)}"
            )


def refuse_kinds(catalog: Catalog, classes: Sequence[dict[str, int]]) -> None:
    """Raise `DataError` if all classes have images in the same folders, such as masks.

    The folders may also be patients, if each has other groups.
    """
    kinds = classes[0].keys()
    if len(classes) < 2 or len(kinds) < 2 or any(each.keys() != kinds for each in classes):
        return
    groups = catalog.groups
    if groups is not None and all(
        len({groups[at] for at in each.values()}) == len(kinds) for each in classes
    ):
        return
    listed = ", ".join(sorted(kinds - {""})[:5])
    raise DataError(
        f"{catalog.path(classes[0][max(kinds)])}: every class has images in the same folders"
        f" ({listed}). If one has no images to train on, such as masks, {leave_out(max(kinds))};"
        " if the folders are patients, find them with --group; if they are the classes, name one"
        f" folder above them, or {FIND_CLASSES}"
    )
