"""``rosetta``'s small commands, and what it answers to a command or option that is none."""

import webbrowser
from pathlib import Path
from unittest.mock import Mock

import pytest
import records

from helpers.__main__ import build, main


def test_every_command_describes_itself(capsys: pytest.CaptureFixture[str]) -> None:
    _, commands = build()
    for name in commands.choices:
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"usage: rosetta {name} ")
        assert max(map(len, shown.splitlines())) <= 100


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rnu"], "unknown command 'rnu': did you mean 'run'?"),
        (["frobnicate"], "unknown command 'frobnicate': the commands are run, slurm"),
        (["--devices", "2"], "did you mean 'rosetta run --devices'?"),
        (["run", "--framework", "pytorch"], "--framework pytorch (rosetta run --help shows all"),
        (["run", "--hang-timeout", "-1"], "'-1': give minutes, 0 or more"),
        (["diff"], "the following arguments are required: OLD"),
        (["report", "--json", "--out", "x"], "--json writes no file"),
        (["open", "nothing-there"], "no such experiment"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    shown = capsys.readouterr()
    assert says in shown.err and len(shown.err.splitlines()) == 1 and shown.out == ""


def test_the_report_is_opened_in_a_browser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = Mock(return_value=True)
    monkeypatch.setattr(webbrowser, "open", opened)
    page = tmp_path / "report.html"
    page.touch()
    assert main(["open", str(tmp_path)]) == 0
    opened.assert_called_once_with(page.as_uri())
    assert not page.read_text()
    records.save(tmp_path, records.make())  # a run that ended after the report was written
    assert main(["open", str(tmp_path)]) == 0
    assert "PyTorch" in page.read_text()
    opened.return_value = False
    assert main(["open", str(tmp_path)]) == 2
    assert "no browser was found" in capsys.readouterr().err
