"""Read the bytes of one image of a catalogue and decode them.

A worker process needs little data: the folder, the type and the text of a source.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from data_prep import manifest
from data_prep.catalog import Catalog
from data_prep.errors import DataError
from data_prep.files import open_regular
from data_prep.image_decoding import decode, read_bytes

LOCATION = re.compile(r"(.+)@([0-9]{1,15})\+([0-9]{1,10})", re.DOTALL)


def read_image(catalog: Catalog, image: int, channels: int) -> np.ndarray:
    """Read an image, uint8 (height, width, channels)."""
    data = read_source(catalog.folder, catalog.kind, catalog.sources[image])
    return decode_source(data, catalog.kind, catalog.path(image), channels)


def read_source(folder: str | os.PathLike[str], kind: str, place: str) -> bytes:
    """Return the bytes of a source, not decoded."""
    if kind == "file":
        return read_bytes(os.path.join(folder, place))  # noqa: PTH118 (speed)
    name, offset, size = parse_location(place)
    if kind == "record":
        from data_prep.readers import cifar10

        return cifar10.batch_bytes(Path(folder, name))[offset : offset + size]
    path = Path(folder, name)
    try:
        with open_regular(path) as file:
            file.seek(offset)
            data = file.read(size)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    if len(data) < size:
        raise DataError(f"{path}: shorter than expected; download it again")
    return data


def decode_source(data: bytes, kind: str, name: str, channels: int) -> np.ndarray:
    """Decode the bytes of a source to uint8 (height, width, channels); errors have `name`."""
    if kind != "record":
        return decode(data, name, channels)
    from data_prep.readers import cifar10
    from data_prep.readers.catalog_reader import to_channels

    return to_channels(cifar10.images_of_planes(data)[0], channels)


def source_state(folder: str | os.PathLike[str], kind: str, place: str) -> str:
    """Return `manifest.file_state` of the file that contains a source."""
    name = place if kind == "file" else parse_location(place)[0]
    return manifest.file_state(os.path.join(folder, name.partition("!")[0]))  # noqa: PTH118 (speed)


def parse_location(place: str) -> tuple[str, int, int]:
    """Return file, offset and number of bytes of a location within a file."""
    found = LOCATION.fullmatch(place)
    assert found is not None, place  # written by this package
    return found[1], int(found[2]), int(found[3])
