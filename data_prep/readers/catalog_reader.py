"""Read the images of a catalogue: the reader of every format of data_prep.

A worker process needs little data to read an image: the folder, the type and the text of a source.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_prep import manifest
from data_prep.catalog import Catalog, Policy, apply_label_policies, split_catalog
from data_prep.image_decoding import decode, read_bytes, to_channels
from data_prep.readers import cifar10

if TYPE_CHECKING:
    import pandas as pd

LOCATION = re.compile(r"(.+)@([0-9]{1,15})\+([0-9]{1,10})", re.DOTALL)


class CatalogReader:
    """The images of a catalogue, in grey or RGB; see `data_prep.readers`."""

    def __init__(
        self,
        catalog: Catalog,
        array: np.ndarray | None = None,
        *,
        channels: int = 3,
        uncertain: Policy = "zero",
        missing: Policy = "zero",
        split: dict[str, Any] | None = None,
    ) -> None:
        """Open a catalogue, with the pixels of all images in `array` if they are in memory.

        `array` is uint8 (images, height, width) or (images, height, width, 3), in the catalogue's
        order; `split` are keyword arguments of `data_prep.catalog.split_catalog`."""
        rows = {name: at for at, name in enumerate(catalog.images)} if array is not None else {}
        self.catalog, self.targets = apply_label_policies(catalog, uncertain, missing)
        self.classes = self.catalog.classes
        self.channels = channels
        self.array = array
        self.rows = np.arange(len(self.catalog))
        if len(self.catalog) < len(catalog) and array is not None:
            self.rows = np.array([rows[name] for name in self.catalog.images])
        self._split = split or {}

    def __len__(self) -> int:
        return len(self.catalog)

    def __getstate__(self) -> dict[str, Any]:
        # Pickled for another process, a memory map would be a copy of all images.
        if not isinstance(self.array, np.memmap):
            return self.__dict__
        return self.__dict__ | {"array": None, "mapped": str(self.array.filename)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if mapped := state.pop("mapped", None):
            state["array"] = np.load(mapped, mmap_mode="r", allow_pickle=False)
        self.__dict__.update(state)

    @property
    def task(self) -> str:
        """Return `findings` or `classes`."""
        return self.catalog.task

    def parts(self, seed: int | None = None) -> dict[str, np.ndarray]:
        """Return the int64 indices, ascending, of `train`, `valid` and `test`."""
        return split_catalog(self.catalog, **self._split | ({} if seed is None else {"seed": seed}))

    def read(self, i: int) -> np.ndarray:
        """Return image i, uint8 (height, width, channels)."""
        if self.array is None:
            catalog = self.catalog
            data = read_source(catalog.folder, catalog.kind, catalog.sources[i])
            return decode_source(data, catalog.kind, catalog.path(i), self.channels)
        return to_channels(self.array[self.rows[i]], self.channels)

    def table(self) -> pd.DataFrame:
        """Return a table with one row per image.

        The columns are `image`, `path` (as `Catalog.path`), `row` (in `array`), `group` (the name
        of an image without a group), then the number of the class as `class`, or one uint8 column
        per finding.
        """
        import pandas as pd

        catalog = self.catalog
        columns: dict[str, Any] = {
            # Not pandas' string type, which is UTF-8; a folder's name need not be UTF-8.
            "image": pd.Series(list(catalog.images), dtype=object),
            "path": pd.Series([catalog.path(i) for i in range(len(catalog))], dtype=object),
            "row": self.rows,
            "group": catalog.images if catalog.groups is None else catalog.groups,
        }
        if self.task == "classes":
            columns["class"] = self.targets
        else:
            columns |= {name: self.targets[:, at] for at, name in enumerate(self.classes)}
        return pd.DataFrame(columns)


def read_source(folder: str | os.PathLike[str], kind: str, place: str) -> bytes:
    """Return the bytes of a source, not decoded."""
    if kind == "file":
        return read_bytes(os.path.join(folder, place))  # noqa: PTH118 (speed)
    name, offset, size = _parse_location(place)
    with Path(folder, name).open("rb") as file:
        file.seek(offset)
        return file.read(size)


def decode_source(
    data: bytes, kind: str, name: str, channels: int, notes: list[str] | None = None
) -> np.ndarray:
    """Decode the bytes of a source to uint8 (height, width, channels); errors have `name`."""
    if kind != "record":
        return decode(data, name, channels, notes)
    return to_channels(cifar10.images_of_planes(data)[0], channels)


def source_state(folder: str | os.PathLike[str], kind: str, place: str) -> str:
    """Return `manifest.file_state` of the file that contains a source."""
    name = place if kind == "file" else _parse_location(place)[0]
    return manifest.file_state(os.path.join(folder, name))  # noqa: PTH118 (speed)


def _parse_location(place: str) -> tuple[str, int, int]:
    """Return file, offset and number of bytes of a location within a file."""
    found = LOCATION.fullmatch(place)
    assert found is not None, place  # written by this package
    return found[1], int(found[2]), int(found[3])
