"""Choices no one should make: absurd numbers, hostile sweeps, names that are taken or empty."""

from pathlib import Path

import pytest

pytest.importorskip("papermill")

from runner_tools import BEGIN, FINISH, Suite, images_fixture, suite_fixture

from helpers import paths
from helpers.__main__ import main

__all__ = ["images_fixture", "suite_fixture"]

DIGITS = "9" * 5000


def refused(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that was said."""
    captured = capsys.readouterr()
    assert not captured.out and captured.err.startswith("error: ")
    assert len(captured.err.splitlines()) == 1
    assert not paths.RUNS.exists()
    return captured.err


@pytest.mark.parametrize("option", ["--epochs", "--batch-size", "--num-workers", "--warmup-epochs"])
def test_a_number_of_5000_digits_is_refused(
    suite: Suite, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook("A", BEGIN, FINISH)
    assert suite.compare("--dry-run", option, DIGITS) == 2
    assert f"{option.removeprefix('--').replace('-', '_')} is '9999" in refused(capsys)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'seeds = ["{DIGITS}"]', "line 1: seed '9999"),
        (f'repeats = "{DIGITS}"', "line 1: repeats '9999"),
        (f"warmup_epochs = 1{400 * '0'}", "line 1: warmup_epochs is 1000"),
        ('data = "~nobody-has-this-name/x"', "data folder '~nobody-has-this-name/x' does not"),
        (f"a{'.a' * 20_000} = 1", "too many dots for a sweep"),
        (f"x = {{a{'.a' * 20_000} = 1}}", "too many dots for a sweep"),
        ("seeds = [1]\nseeds = [\n  1,\n  2,\n]", "line 2: 'seeds' is given twice: keep one"),
        ("seeds = [1]\nseeds = '''\n1,\n2'''", "line 2: 'seeds' is given twice: keep one"),
    ],
)
def test_a_hostile_sweep_is_refused(
    suite: Suite, tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook("A", BEGIN, FINISH)
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    assert main(["run", "--dry-run", "--sweep", str(file)]) == 2
    line = refused(capsys)
    assert said in line and str(file) in line


def test_a_home_that_none_has_is_a_folder_that_is_not_there(
    suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.notebook("A", BEGIN, FINISH)
    assert main(["run", "--dry-run", "--sweep", "~nobody-has-this-name/sweep.toml"]) == 2
    assert "~nobody-has-this-name/sweep.toml: the sweep cannot be read" in refused(capsys)


@pytest.mark.parametrize("name", ["", "interactive"])
def test_a_batch_needs_a_name_of_its_own(
    suite: Suite, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty one, as of a shell's variable that is not set, is no name and not none either."""
    suite.notebook("A", BEGIN, FINISH)
    assert suite.compare("--dry-run", "--name", name) == 2
    assert f"experiment name '{name}': use letters" in refused(capsys)
    file = tmp_path / "sweep.toml"
    file.write_text('name = "overnight"\n')
    assert suite.compare("--dry-run", "--name", name, "--sweep", str(file)) == 2
    assert f"experiment name '{name}': use letters" in refused(capsys)


@pytest.mark.parametrize("option", ["--name", "--sweep"])
def test_an_empty_option_beside_resume_is_refused_as_a_full_one_is(
    suite: Suite, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite.compare("--resume", "b", option, "") == 2
    assert f"leave out {option}" in refused(capsys)
