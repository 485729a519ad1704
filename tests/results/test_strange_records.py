"""A record from a stranger is set aside or shown as text; it hides no other and reaches nothing."""

import json
import os
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import records
from hostile.records import STRANGE

from helpers import record
from helpers.__main__ import main
from helpers.errors import UserError
from helpers.results import comparison, comparison_tables, paired_test, report

MARKUP = "<script>alert(1)</script><img src=x onerror=alert(2)>"
TEXTS = {
    "markup": MARKUP,
    "the end of a script": "</script></style></svg>" + MARKUP,
    "an attribute": "\" onmouseover=alert(1) x='",
    "a template": "{{ 7 * 7 }}{% include '/etc/passwd' %}",
    "a formula": "$\\frac{$ \\input{/etc/passwd}",
    "a table's formula": "=cmd|'/c calc'!A1",
    "a format": "%s{0}{entry.__class__}%n",
    "a path": "../../../../../../tmp/owned",
    "an absolute path": "/etc/passwd",
    "escapes": "\x1b[2J\x1b]0;owned\x07\x00\u202e\u2028\ud800",
    "100,000 letters": "x" * 100_000,
    "nothing": "",
}


def named(text: str) -> dict[str, Any]:
    """A whole record that says ``text`` wherever it may say something."""
    content: dict[str, Any] = records.make(gpu=True)

    def spoilt(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: spoilt(item) for key, item in part.items()}
        if isinstance(part, list):
            return [spoilt(item) for item in part]
        return text if isinstance(part, str) else part

    for section in ("run", "framework", "hardware", "recipe", "monitor"):
        content[section] = spoilt(content[section])
    content["recipe"] |= {"task": "multilabel", "optimizer": "adam", "lr_scaling": "linear"}
    content["recipe"] |= {"execution": "default"}
    content["devices"]["names"] = [text, text]
    content["data"] |= {"folder": text, "format": text}
    content["weights"] |= {"sha256": text, "note": text}
    content["framework"]["versions"] = {text: text}
    content["fairness"]["checks"] = [
        check | {"check": text, "reason": text} for check in content["fairness"]["checks"]
    ]
    content["attribution"]["sentence"] = text
    content["attribution"]["shares"][text] = 0.1
    content["test"]["findings"] = [row | {"finding": text} for row in content["test"]["findings"]]
    content["skipped"] = [{"what": text, "reason": text}]
    reason = text or None  # the schema wants some
    content["self_test"] = records.probe(reason=reason) | {
        "devices": [text, text],
        "versions": {text: text},
        "steps": [{"what": "start", "device": None, "seconds": None, "reason": reason}],
    }
    content["checkpoint"] = {"resumed_after": 0, "seconds": 0.0, "damaged": text}
    return content


def put(batch: Path, name: str, content: dict[str, Any]) -> None:
    folder = batch / name
    folder.mkdir(parents=True)
    (folder / record.FILE).write_text(json.dumps(content), encoding="utf-8")


class Page(HTMLParser):
    """The tags of a page, and what could make one act by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.acts: list[tuple[str, str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attributes:
            leads = name in ("href", "src", "action", "formaction", "data")
            away = leads and not (value or "").startswith(("#", "data:"))
            if name.startswith("on") or (away and tag != "a"):
                self.acts.append((tag, name, value))


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_what_cannot_be_read_hides_nothing(tmp_path: Path) -> None:
    batch = tmp_path / "batch"
    records.save(batch, records.make("PyTorch"))
    records.save(batch, records.make("Keras"))
    for number, (strange, _) in enumerate(STRANGE.values()):
        (batch / f"Strange{number}-2x").mkdir()
        strange(batch / f"Strange{number}-2x" / record.FILE)
    compared = comparison.load(batch)
    assert [entry.label for entry in compared.entries] == ["PyTorch", "Keras"]
    lost = {"a link to itself", "a link to nothing"}  # lead to no record
    assert len(compared.unreadable) == len(STRANGE.keys() - lost)
    assert all(why.isprintable() for why in compared.unreadable)
    assert len(comparison_tables.runs(compared).frame) == 3  # and a row of what cannot be read
    page = report.write(batch).read_text()
    assert "newer version of this project" in page and "nested too deep" in page


def test_text_from_a_record_is_nothing_but_text(tmp_path: Path) -> None:
    """Not on the page, in Markdown or tables, and no path to anywhere."""
    batch = tmp_path / "batch"
    for number in range(len(TEXTS)):
        put(batch, f"{number}-2x", named(f"name {number}"))
    harmless = Page(report.write(batch).read_text(encoding="utf-8"))
    before = everything(tmp_path)

    for number, text in enumerate(TEXTS.values()):
        (batch / f"{number}-2x" / record.FILE).write_text(json.dumps(named(text)))
    assert comparison.load(batch).unreadable == ()
    page = report.write(batch).read_text(encoding="utf-8")

    assert Page(page).acts == []
    assert Page(page).tags["script"] == harmless.tags["script"]
    assert set(Page(page).tags) <= set(harmless.tags)
    assert "{{ 7 * 7 }}" in page
    text = (batch / report.MARKDOWN).read_text(encoding="utf-8")
    assert "<img" not in text and all(line.isprintable() for line in text.splitlines())
    assert everything(tmp_path) == before, "nothing was written elsewhere"


def test_runs_with_other_numbers_of_resamples_are_not_paired(tmp_path: Path) -> None:
    content = records.make("Keras")
    content["test"]["resamples"] = content["test"]["resamples"][:7]
    for one in (records.make("PyTorch"), records.make("Chainer"), content):
        records.save(tmp_path, one)
    verdicts = paired_test.table(comparison.load(tmp_path)).frame["verdict"]
    assert verdicts["Keras, 2 devices"] == "cannot be paired: other test images"


def test_tables_of_others_in_the_reports_folder_stay(tmp_path: Path) -> None:
    records.save(tmp_path, records.make())
    own = tmp_path / report.CSV / "own.csv"
    own.parent.mkdir()
    own.write_text("mine")
    stale = tmp_path / report.CSV / "scaling.csv"
    stale.write_text("of an older report")
    report.write(tmp_path)
    assert own.read_text() == "mine" and not stale.exists()


def test_a_page_that_is_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    records.save(tmp_path / "batch", records.make())
    (tmp_path / "own").write_text("mine")
    (tmp_path / "batch" / report.HTML).symlink_to(tmp_path / "own")
    report.write(tmp_path / "batch")
    assert (tmp_path / "own").read_text() == "mine"
    assert not (tmp_path / "batch" / report.HTML).is_symlink()


def test_how_many_strange_ones_there_are_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / record.FILE).write_text("{")
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith("(and 2 more that cannot be read)\n")
    assert not (tmp_path / report.HTML).exists() and not (tmp_path / report.CSV).exists()


def test_a_record_that_none_may_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, os.strerror(13))

    folder = records.save(tmp_path, records.make())
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UserError, match=r"cannot be read \(Permission denied\)"):
        record.read(folder)
