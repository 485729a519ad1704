"""What comes from outside is hostile until checked: one line, exit code 2, nothing lost."""

import importlib
import pkgutil
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import hostile
import pytest
from hostile.case import Case

from data_prep import __main__ as data_prep_command
from gpumon import __main__ as gpumon_command
from helpers import __main__ as rosetta_command
from helpers import paths

MAIN = {
    "rosetta": rosetta_command.main,
    "data-prep": data_prep_command.main,
    "gpumon": gpumon_command.main,
}
SIGN = {"rosetta": "error: ", "data-prep": "data-prep: ", "gpumon": "gpumon: "}
"""How each begins the line that says what is wrong; a progress bar may come before it."""
LONGEST = 30
"""Seconds within which each has to be answered."""


def cases() -> Iterator[Case]:
    for module in pkgutil.iter_modules(hostile.__path__):
        if module.name != "case":
            yield from importlib.import_module(f"hostile.{module.name}").CASES


@pytest.fixture(autouse=True)
def answered_in_time() -> Iterator[None]:
    """What hangs fails instead of holding up all that follow."""

    def ring(*_: object) -> None:
        pytest.fail(f"no answer within {LONGEST} s")  # which no `except Exception` catches

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LONGEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_hostile(
    case: Case,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(paths, "RUNS", tmp_path / "runs")
    folder = tmp_path / "strange"
    folder.mkdir()
    program, *words = case.lay(folder)
    before = {name: (folder / name).read_bytes() for name in case.keeps}
    capfd.readouterr()

    code = MAIN[program](words)

    text = capfd.readouterr().err
    before_it, sign, after = text.partition(SIGN[program])
    said = (after if sign else text).removesuffix("\n")
    assert code == case.code and (sign or code == 0), text
    assert "Traceback" not in before_it
    assert said.isprintable(), f"not one plain line: {said!r}"
    assert re.search(case.says, said)
    assert {name: (folder / name).read_bytes() for name in case.keeps} == before
