"""The files of a run's ranks: whose they have to be, before anything is read of them."""

import json
import os
from pathlib import Path

import pytest

from helpers.errors import UserError
from helpers.launch import processes, run_files


def test_untrusted_file_is_not_read(tmp_path: Path) -> None:
    """Another user's, one that others may write, and what is no file: each is refused in a line."""
    path = tmp_path / "call-0"
    assert run_files.read(path) is None
    run_files.write(path, {"loss": 0.5})
    assert run_files.read(path) == {"loss": 0.5}
    path.chmod(0o620)
    with pytest.raises(UserError, match="or other users can write it; keep other users out"):
        run_files.read(path)
    if os.geteuid() == 0:
        path.chmod(0o600)
        os.chown(path, 12345, -1)
        with pytest.raises(UserError, match="user 12345 owns it"):
            run_files.read(path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to("elsewhere")
    with pytest.raises(UserError, match="this project did not write it"):
        run_files.read(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="or other users can write it"):
        run_files.read(path)


def test_a_new_folder_takes_old_ones_away_but_none_in_use(tmp_path: Path) -> None:
    first, second = run_files.make_folder(tmp_path), run_files.make_folder(tmp_path)
    assert first.exists() and first.stat().st_mode & 0o777 == 0o700
    ended = processes.own() | {"process": 2**31 - 1}
    (first / run_files.OWNER).write_text(json.dumps(ended))
    elsewhere = ended | {"host": "node7", "process_space": "b"}
    (second / run_files.OWNER).write_text(json.dumps(elsewhere))
    for number, text in enumerate(("", "[]", "{}")):
        (broken := tmp_path / f"ranks-{number}").mkdir()
        (broken / run_files.OWNER).write_text(text)
    third = run_files.make_folder(tmp_path)
    assert set(tmp_path.iterdir()) == {second, third}, "the second is another host's"
