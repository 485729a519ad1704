"""The folder of a run's ranks."""

import json
from pathlib import Path

from helpers.launch import processes, run_files


def test_a_new_folder_takes_old_ones_away_but_none_in_use(tmp_path: Path) -> None:
    first, second = run_files.make_folder(tmp_path), run_files.make_folder(tmp_path)
    assert first.exists() and first.stat().st_mode & 0o777 == 0o700
    ended = processes.own() | {"process": 2**31 - 1}
    (first / run_files.OWNER).write_text(json.dumps(ended))
    elsewhere = ended | {"host": "node7", "process_space": "b"}
    (second / run_files.OWNER).write_text(json.dumps(elsewhere))
    (broken := tmp_path / "ranks-0").mkdir()
    (broken / run_files.OWNER).write_text("")
    third = run_files.make_folder(tmp_path)
    assert set(tmp_path.iterdir()) == {second, third}, "the second is another host's"
