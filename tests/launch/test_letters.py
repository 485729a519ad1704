"""The messages of a run's ranks: whose they have to be, before anything is read of them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from helpers.errors import UserError
from helpers.launch import letters, processes


class Attack:
    """Whoever unpickles it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def test_a_strangers_message_is_not_unpickled(tmp_path: Path) -> None:
    """Another user's, one that others may write, and what is no file: each is refused in a line."""
    mark, path = tmp_path / "mark", tmp_path / "call-0"
    letters.send(path, Attack(mark))
    letters.received(path)
    assert mark.exists(), "the attack works"
    mark.unlink()
    path.chmod(0o620)
    with pytest.raises(UserError, match="or others may write it; keep others out"):
        letters.received(path)
    if os.geteuid() == 0:
        path.chmod(0o600)
        os.chown(path, 12345, -1)
        with pytest.raises(UserError, match="it is user 12345's"):
            letters.received(path)
        with pytest.raises(UserError, match="it is user 12345's"):
            letters.heard(path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to("elsewhere")
    with pytest.raises(UserError, match="none of our messages"):
        letters.received(path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="or others may write it"):
        letters.heard(path)
    assert not mark.exists()


def test_a_new_folder_takes_old_ones_away_but_none_in_use(tmp_path: Path) -> None:
    first, second = letters.make_folder(tmp_path), letters.make_folder(tmp_path)
    assert first.exists() and first.stat().st_mode & 0o777 == 0o700
    ended = processes.own() | {"process": 2**31 - 1}
    (first / letters.OWNER).write_text(json.dumps(ended))
    (second / letters.OWNER).write_text(json.dumps(ended | {"host": "node7", "process_space": "b"}))
    for number, text in enumerate(("", "[]", "{}")):
        (broken := tmp_path / f"ranks-{number}").mkdir()
        (broken / letters.OWNER).write_text(text)
    third = letters.make_folder(tmp_path)
    assert set(tmp_path.iterdir()) == {second, third}, "the second is another host's"
