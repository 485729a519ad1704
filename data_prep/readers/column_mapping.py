"""Read and check a column mapping, `table.toml`, which docs/your-images.md explains."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from data_prep.errors import DataError
from data_prep.files import MAX_TEXT_BYTES, read_limited
from data_prep.readers.path_safety import UNSAFE_PATH

MAPPING_FILE = "table.toml"

Text = Annotated[str, msgspec.Meta(min_length=1)]
Texts = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
ByPart = Annotated[dict[Literal["train", "valid", "test"], Text], msgspec.Meta(min_length=1)]


class ColumnMapping(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"class_": "class"}
):
    """A mapping with the keys of the file; ValueError, with key and fix, if they do not fit."""

    file: str | ByPart
    path: Text
    remove_prefix: Text | None = None
    name: Text | None = None
    group: Text | None = None
    group_pattern: Text | None = None
    split: Text | None = None
    findings: Texts = ()
    labels: Text | None = None
    no_finding: Texts = ("No Finding",)
    handle_unknown: Literal["error", "ignore"] = "error"
    merge_rows: bool = False
    class_: Text | None = None
    classes: Texts = ()

    @property
    def files(self) -> Mapping[Any, str]:
        """Return the names of the files by split; the split is "" for all images."""
        return {"": self.file} if isinstance(self.file, str) else self.file

    def __post_init__(self) -> None:
        for key in ("findings", "no_finding", "classes"):
            values = getattr(self, key)
            if len(set(values)) < len(values):
                raise ValueError(f"'{key}' names one twice: {list(values)}")
        if (self.class_ and self.labels) or not (self.class_ or self.labels or self.findings):
            raise ValueError("give one of 'findings', 'labels' with 'findings', and 'class'")
        if self.merge_rows and self.class_:
            raise ValueError("'merge_rows' joins findings only; remove it, or give 'findings'")
        if self.labels and not self.findings:
            raise ValueError("'labels' needs 'findings', the names to learn, in their order")
        try:
            re.compile(self.group_pattern or "")
        except re.error as error:
            raise ValueError(f"'group_pattern' is not a regular expression ({error})") from None
        for name in self.files.values():
            if UNSAFE_PATH.search(name):
                raise ValueError(f"'file' is {name!r}; a path within the folder is needed")


def read_mapping(
    folder: Path, table: str | os.PathLike[str] | Mapping[str, Any] | None
) -> ColumnMapping:
    """Return the mapping: the dictionary, the named file, or the folder's `table.toml`."""
    where: object = "the mapping"
    content: Any = table
    try:
        if not isinstance(table, Mapping):
            where = folder / MAPPING_FILE if table is None else Path(table)
            content = tomllib.loads(read_limited(where, MAX_TEXT_BYTES).decode("utf-8-sig"))
        return msgspec.convert(content, ColumnMapping)
    except FileNotFoundError:
        fix = "write one (see docs/your-images.md) or name one with --table"
        raise DataError(f"{where}: the mapping of columns is missing; {fix}") from None
    except (OSError, ValueError, RecursionError) as error:  # also msgspec's
        raise DataError(f"{where}: {error}; fix it (see docs/your-images.md)") from None
