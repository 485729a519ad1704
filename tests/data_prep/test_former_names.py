"""Former names: an option or subcommand names the new one, a key in a file is still read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from data_prep_tools import command, make_folder, process, the_line

from data_prep import open_reader, resize_folder
from data_prep.errors import DataError
from data_prep.former_names import COMMANDS, OPTIONS


@pytest.mark.parametrize(("former", "name"), COMMANDS.items())
def test_a_former_subcommand_names_the_new_one(former: str, name: str) -> None:
    assert the_line(command(former, "x")) == f"data-prep: the subcommand {former} is now {name}"


@pytest.mark.parametrize(("former", "name"), OPTIONS.items())
def test_a_former_option_names_the_new_one(former: str, name: str) -> None:
    line = the_line(command("resize", "a", "b", former, "1"))
    assert line == f"data-prep: {former} is now {name}"
    assert the_line(command("resize", "a", "b", f"{former}=1")) == line


def test_a_folder_may_have_a_former_name(tmp_path: Path) -> None:
    make_folder(tmp_path / "demo")
    assert command("stats", tmp_path / "demo").returncode == 0


@pytest.mark.parametrize("words", [("--sizes", "8"), ("--size", "x"), ("--resize-mode", "crop")])
def test_a_bad_argument_is_one_line(words: tuple[str, ...]) -> None:
    done = process("resize", "a", "b", *words)
    line = the_line(done)
    assert done.stderr == f"{line}\n"
    assert words[0] in line and "run 'data-prep resize --help'" in line


def test_a_prepared_folder_of_former_keys_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = make_folder(tmp_path / "set"), tmp_path / "small"

    def again() -> int:
        how = {"size": 8, "resize_mode": "center-crop", "num_workers": 1, "progress": False}
        return int(resize_folder(source, target, **how)["written"])  # type: ignore[arg-type]

    assert again() == 24
    file = target / "prepared.json"
    note = json.loads(file.read_text())
    assert note.pop("resize_mode") == "center-crop"
    file.write_text(json.dumps(note | {"fit": "crop"}))
    (target / "images" / "00000001_000.png").unlink()
    assert again() == 1
    said = capsys.readouterr().err
    assert f"note: {file}: 'fit' is now 'resize_mode'" in said
    assert json.loads(file.read_text())["resize_mode"] == "center-crop"
    assert "fit" not in json.loads(file.read_text())


FORMER = 'file="l.csv"\npath="p"\npart="s"\nlabels="n"\nfindings=["a"]\n'


def test_a_table_of_former_keys_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_folder(tmp_path)
    names = sorted(path.name for path in (folder / "images").iterdir())
    rows = [f"images/{name},{'test' if i % 2 else 'train'},[]" for i, name in enumerate(names)]
    (folder / "l.csv").write_text("\n".join(["p,s,n", *rows, ""]))
    mapping = folder / "table.toml"
    mapping.write_text(FORMER + 'form="list"\nnone=["b"]\nothers="refuse"\n')
    assert len(open_reader("table", folder).parts()["test"]) == len(names) // 2
    said = capsys.readouterr().err
    for former, name in {
        "part": "split",
        "form": "label_format",
        "none": "no_finding",
        "others": "handle_unknown",
    }.items():
        assert f"note: {mapping}: '{former}' is now '{name}'" in said
    mapping.write_text(FORMER + 'split="s"\n')
    with pytest.raises(DataError, match="'part' is now 'split', and both are there"):
        open_reader("table", folder)
