"""Read the images of a catalogue: the reader of every format of data_prep."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from data_prep import manifest
from data_prep.catalog import Catalog, Policy, apply_label_policies, split_catalog
from data_prep.image_decoding import decode, read_bytes, to_channels
from data_prep.readers import cifar10

if TYPE_CHECKING:
    import pandas as pd


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
        """Open a catalogue; `array` has all images, `split` are arguments of `split_catalog`."""
        rows = {name: at for at, name in enumerate(catalog.images)} if array is not None else {}
        self.catalog, self.targets = apply_label_policies(catalog, uncertain, missing)
        self.classes: Sequence[str] = self.catalog.classes
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

    def splits(self, seed: int | None = None) -> dict[str, np.ndarray]:
        """Return the int64 indices, ascending, of `train`, `valid` and `test`."""
        return split_catalog(self.catalog, **self._split | ({} if seed is None else {"seed": seed}))

    def read(self, i: int) -> np.ndarray:
        """Return image i, uint8 (height, width, channels)."""
        if self.array is None:
            catalog = self.catalog
            data = read_source(catalog.folder, catalog.sources[i])
            return decode(data, catalog.path(i), self.channels)
        # A slice of a memory map would be a map again.
        return to_channels(np.asarray(self.array)[self.rows[i]], self.channels)

    def table(self) -> pd.DataFrame:
        """Return a table with one row per image.

        The columns are `image`, `path`, `row` (its index), `group` (the name of an image without a
        group), then the number of the class as `class`, or one uint8 column per finding.
        """
        import pandas as pd

        catalog = self.catalog
        columns: dict[str, Any] = {
            # Not pandas' string type, which is UTF-8; a folder's name need not be UTF-8.
            "image": pd.Series(list(catalog.images), dtype=object),
            "path": pd.Series([catalog.path(i) for i in range(len(catalog))], dtype=object),
            "row": np.arange(len(catalog)),
            "group": catalog.images if catalog.groups is None else catalog.groups,
        }
        if self.task == "classes":
            columns["class"] = self.targets
        else:
            columns |= {name: self.targets[:, at] for at, name in enumerate(self.classes)}
        return pd.DataFrame(columns)


def read_source(folder: str | os.PathLike[str], place: str) -> bytes:
    """Return the bytes of a source, an image file that is not decoded."""
    if record := cifar10.LOCATION.fullmatch(place):
        return cifar10.read_as_ppm(Path(folder, record[1]), int(record[2]))
    return read_bytes(os.path.join(folder, place))  # noqa: PTH118 (speed)


def source_state(folder: str | os.PathLike[str], place: str) -> str:
    """Return `manifest.file_state` of the file that contains a source."""
    record = cifar10.LOCATION.fullmatch(place)
    return manifest.file_state(os.path.join(folder, record[1] if record else place))  # noqa: PTH118
