"""A record that is none is set aside and hides no other; the text of one is nothing but text."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import records
from bs4 import BeautifulSoup, Tag
from hostile.records import STRANGE

from helpers import record
from helpers.results import comparison, comparison_tables, report

MARKUP = "</script></style></svg><script>alert(1)</script><img src=x onerror=alert(2)> {{ 7 * 7 }}"


def named(text: str) -> dict[str, Any]:
    """A whole record that says ``text`` wherever it may say something."""
    content: dict[str, Any] = records.make(gpu=True)

    def spoilt(part: Any) -> Any:
        if isinstance(part, dict):
            return {key: spoilt(item) for key, item in part.items()}
        if isinstance(part, list):
            return [spoilt(item) for item in part]
        return text if isinstance(part, str) else part

    free = ("name", "text", "sha256")  # the type Recipe checks all others
    settings = {name: value for name, value in content["recipe"].items() if name not in free}
    for section in ("run", "framework", "hardware", "recipe", "monitor"):
        content[section] = spoilt(content[section])
    content["recipe"] |= settings
    content["devices"]["names"] = [text, text]
    content["data"] |= {"folder": text, "format": text}
    content["weights"] |= {"sha256": text}
    content["framework"]["versions"] = {text: text}
    content["fairness"]["checks"] = [
        check | {"check": text, "reason": text} for check in content["fairness"]["checks"]
    ]
    content["attribution"]["sentence"] = text
    content["attribution"]["shares"][text] = 0.1
    content["test"]["findings"] = [row | {"finding": text} for row in content["test"]["findings"]]
    return content


class Page:
    """The tags of a page, and what could make one act by itself."""

    def __init__(self, text: str) -> None:
        tags = BeautifulSoup(text, "html.parser")(True)
        self.tags = Counter(tag.name for tag in tags)
        self.acts = [(t.name, *pair) for t in tags for pair in t.attrs.items() if acts(t, *pair)]


def acts(tag: Tag, name: str, value: Any) -> bool:
    leads = name in ("href", "src", "action", "formaction", "data") and tag.name != "a"
    return name.startswith("on") or (leads and not value.startswith(("#", "data:")))


def test_what_cannot_be_read_hides_nothing(tmp_path: Path) -> None:
    batch = tmp_path / "batch"
    records.save(batch, records.make("PyTorch"))
    records.save(batch, records.make("Keras"))
    for number, (strange, _) in enumerate(STRANGE.values()):
        (batch / f"Strange{number}-2x").mkdir()
        strange(batch / f"Strange{number}-2x" / record.FILE)
    compared = comparison.load(batch)
    assert [entry.label for entry in compared.entries] == ["PyTorch", "Keras"]
    assert len(compared.left_out) == len(STRANGE.keys() - {"a link to itself"})
    assert all(why.isprintable() for why in compared.left_out)
    assert len(comparison_tables.runs(compared).frame) == 3  # and a row of what cannot be read
    assert "maximum recursion depth" in report.write(batch).read_text()


def test_text_from_a_record_is_nothing_but_text(tmp_path: Path) -> None:
    """Neither on the page nor in Markdown."""
    pages = []
    for name, text in (("harmless", "a name"), ("markup", MARKUP + "\x1b[2J\u202e")):
        folder = tmp_path / name / "run-2x"
        folder.mkdir(parents=True)
        (folder / record.FILE).write_text(json.dumps(named(text)), encoding="utf-8")
        assert comparison.load(tmp_path / name).left_out == ()
        pages.append(report.write(tmp_path / name).read_text(encoding="utf-8"))
    harmless, page = map(Page, pages)
    assert page.acts == []
    assert page.tags["script"] == harmless.tags["script"]
    assert set(page.tags) <= set(harmless.tags)
    assert "{{ 7 * 7 }}" in pages[1]
    markdown = (tmp_path / "markup" / report.MARKDOWN).read_text(encoding="utf-8")
    assert "<img" not in markdown and all(line.isprintable() for line in markdown.splitlines())


def test_tables_of_others_in_the_reports_folder_stay(tmp_path: Path) -> None:
    records.save(tmp_path, records.make())
    own = tmp_path / report.CSV / "own.csv"
    own.parent.mkdir()
    own.write_text("mine")
    stale = tmp_path / report.CSV / "scaling.csv"
    stale.write_text("of an older report")
    report.write(tmp_path)
    assert own.read_text() == "mine" and not stale.exists()
