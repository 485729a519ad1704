"""The tool that lets writes fail, on the writer that most others use."""

import errno
from pathlib import Path

import faults
import pytest

from helpers import paths


@faults.alone
def test_each_write_of_a_small_file_fails_in_its_turn(tmp_path: Path) -> None:
    place = tmp_path / "note"
    place.write_text("old")
    calls = faults.count(lambda: paths.write_atomically(place, "new"), below=tmp_path)
    assert calls >= 4  # opened, written, synced, renamed
    for number in range(1, calls + 1):
        place.write_text("old")
        with (
            faults.failing(number, errno.ENOSPC, below=tmp_path),
            pytest.raises(OSError, match="No space left"),
        ):
            paths.write_atomically(place, "new")
        # Renamed it may be, when only the folder could not be synced.
        assert place.read_text() in ("old", "new")
        assert [path.name for path in tmp_path.iterdir()] == ["note"]
