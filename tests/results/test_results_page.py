"""The results page: records of several machines, found below a folder, a hostile one among them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import records
from test_strange_records import MARKUP, Page, named

from helpers import record
from helpers.__main__ import main
from helpers.results.report import results_page

HOSTS = {"anna": ("CPU A", 8), "uni": ("CPU B", 64), "farm": ("CPU C", 96), "lab": ("CPU D", 4)}
PAGE = results_page.PAGE


def of_machine(host: str, framework: str = "PyTorch", **given: Any) -> dict[str, Any]:
    content = records.make(framework, gpu=True, **given)
    content["run"]["host"] = host
    content["hardware"]["cpu"], content["hardware"]["cores"] = HOSTS[host]
    return content


def test_a_row_for_each_machine_and_framework(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At different depths; the fifth machine's record is hostile."""
    for depth, host in enumerate(HOSTS):
        for framework in ("PyTorch", "Keras"):
            folder = (tmp_path / "all" / host).joinpath(*"xyz"[:depth])
            records.save(folder, of_machine(host, framework))
    strange = named(MARKUP)
    strange["hardware"]["cores"] = 3
    (tmp_path / "all" / "fifth" / "run").mkdir(parents=True)
    (tmp_path / "all" / "fifth" / "run" / record.FILE).write_text(json.dumps(strange))
    assert main(["report", "--results", str(tmp_path / "all"), "--out", str(tmp_path / "p")]) == 0
    assert "9 runs of 5 machines, with 0 records left out." in capsys.readouterr().out
    text = (tmp_path / "p" / PAGE).read_text()
    for host, (cpu, cores) in HOSTS.items():
        assert text.count(f"<td>{host} <small>{cpu}, {cores} logical cores</small>") == 2
    assert 'href="../all/farm/x/y/PyTorch_MultiGPU-2x/record.json"' in text
    assert text.count("2 x NVIDIA H100") == 8 and text.count("<td>2026-11-21</td>") == 8
    assert text.count(">passed</td>") == 9
    page = Page(text)
    assert page.acts == [] and page.tags["script"] == 2 and page.tags["img"] == 0
    assert "fastest" not in text.lower().split("<body>")[1].split("<script")[0]


def test_what_is_left_out_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records.save(tmp_path / "good", of_machine("anna"))
    copy = records.save(tmp_path / "later" / "copy", of_machine("anna"))
    unfinished = records.save(tmp_path / "x", records.short("Keras", "failed", "out of memory"))
    for name in ("<b>broken", "large"):
        (tmp_path / name).mkdir()
    (tmp_path / "<b>broken" / record.FILE).write_text("{")
    with (tmp_path / "large" / record.FILE).open("wb") as file:
        file.truncate(500 * 2**20)
    assert main(["report", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "1 run of 1 machine, with 4 records left out." in said.out
    lines = said.err.splitlines()
    assert len(lines) == 4 and all(line.startswith("left out: ") for line in lines)
    for where, why in (
        (copy, "the same run as"),
        (unfinished, r"the run is not finished (failed)"),
        (tmp_path / "<b>broken", "not a JSON file"),
        (tmp_path / "large", "524,288,000 bytes, more than the maximum of"),
    ):
        assert [line for line in lines if f"{where}/{record.FILE}: {why}" in line], why
    text = (tmp_path / PAGE).read_text()
    assert "<b>" not in text and "&lt;b&gt;broken" in text and "with 4 records left out" in text


def test_a_folder_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.save(tmp_path / "good", of_machine("anna"))
    scan = os.scandir

    def refuse(path: str) -> Any:
        if str(path).endswith("good/PyTorch_MultiGPU-2x"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    records.save(tmp_path / "other", of_machine("uni"))
    monkeypatch.setattr(os, "scandir", refuse)
    (line,) = results_page.collect([tmp_path]).left_out
    assert line.endswith("good/PyTorch_MultiGPU-2x: Permission denied")


def test_recipes_are_apart(tmp_path: Path) -> None:
    other = of_machine("uni")
    other["recipe"]["name"] = "chexnet"
    records.save(tmp_path / "a", of_machine("anna"))
    records.save(tmp_path / "b", other)
    found = results_page.collect([tmp_path])
    assert [len(each.entries) for each in found.compared] == [1, 1]
