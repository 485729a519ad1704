"""Public text keeps the rules of prose, and each rule finds a sentence that breaks it."""

import json
from pathlib import Path

import prose_check
import prose_words
import pytest

from helpers import paths


def rules(text: str, kind: str = "text") -> list[str]:
    """The first word of each rule that a text breaks."""
    return [rule.split()[0] for _, rule, _ in prose_check.broken(prose_check.Block(1, text, kind))]


def whole(page: str) -> list[str]:
    return [block.text for block in prose_check.markdown(page)]


@pytest.mark.parametrize("suffix", [".md", ".ipynb", ".py"])
def test_everything_public_keeps_the_rules(
    suffix: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(paths.ROOT)
    files = [str(path) for path in prose_check.public() if path.suffix == suffix]
    assert len(files) > 10
    failed = prose_check.main(files)
    assert not failed, capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("The two cannot be told apart.", ["word"]),
        ("Of several GPUs the sentence has the least share.", ["opening"]),
        ("Whether it works on the nodes, the job says.", ["opening"]),
        ("What each column means is written in a file.", ["opening"]),
        ("Where none holds, none is named.", ["opening"]),
        ("Below the chart stands a sentence.", ["opening"]),
        (" ".join(["word"] * 31), ["31"]),
        ("It took 5 s (one run) on two cores (of eight).", ["2"]),
        ("Good. Of three, one is left.", ["opening"]),
    ],
)
def test_each_rule_finds_what_breaks_it(text: str, broken: list[str]) -> None:
    assert sorted(rules(text)) == broken


@pytest.mark.parametrize(
    "text",
    [
        "What is the limit?",
        "Where do the results go?",
        " ".join(["word"] * 30),
        "`a b c` " * 30,
        f"[{'word ' * 29}]({'far/' * 9}page.md)",
        "Call `f(x)` with a [page](that.md) (a link), or g(x) of the file(s).",
        "It is fast, e.g. on two GPUs. " * 9,
    ],
)
def test_what_keeps_the_rules_is_left_alone(text: str) -> None:
    assert rules(text) == []


def test_figures_in_a_cell_are_one_bracket() -> None:
    assert rules("0.74 (0.72 to 0.76), 12 s (11 to 13)", "cell") == []
    assert rules("0.74 (0.72 to 0.76), 12 s (11 to 13)") == ["2"]
    assert rules("0.74 (0.72 to 0.76), JAX (first)", "cell") == ["2"]


def test_headings_may_begin_as_they_like_and_messages_in_small_letters() -> None:
    assert rules("Where the time went", "heading") == []
    assert rules("of 3 GPUs none is free", "message") == ["opening"]


def test_a_page_is_read_block_by_block() -> None:
    page = """\
# Title

A paragraph
of two lines.

```console
of code
```
- first
  goes further
- second

| head | other |
|---|---|
| `a` | cell |
"""
    assert whole(page) == [
        *("Title", "A paragraph\nof two lines.", "first\n  goes further", "second"),
        *("head", "other", "‹code›", "cell"),
    ]


def test_lines_are_those_of_the_file() -> None:
    (block,) = prose_check.markdown("\n\nFine.\nAlso fine. Of\nthree, one.\n")
    assert [line for line, _, _ in prose_check.broken(block)] == [4]


def test_help_and_messages_of_a_module_are_read(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "parser.add_argument('--a', help='of all the last')\n"
        "def f(n):\n    raise UserError(f'whether {n} is there, see')\n"
    )
    found = [block.text for _, block in prose_check.blocks(tmp_path / "module.py")]
    assert sorted(found) == ["of all the last", "whether … is there, see"]


def test_markdown_cells_of_a_notebook_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = [
        {"cell_type": "code", "source": ["# Of code"]},
        {"cell_type": "markdown", "source": ["Of text\n", "nothing."]},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    assert prose_check.main([str(tmp_path / "a.ipynb")]) == 1
    assert 'a.ipynb:cell 1:1: opening "Of text nothing."' in capsys.readouterr().out


def test_every_word_has_a_better_one() -> None:
    for pattern, instead in {**prose_words.EVERYWHERE, **prose_words.IN_PROSE}.items():
        assert instead and pattern
    assert prose_words.better("Roll call") == "data-coverage check"
    assert prose_words.better("stand-in") == "fake, mock"


def test_sentences_of_the_report_are_read_and_its_docstrings_are_not(tmp_path: Path) -> None:
    module = tmp_path / "helpers" / "results" / "words.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        '"""Of six words none is read."""\nA = f"Of {2} runs " + "the last is shown."\n'
    )
    assert [block.text for block in prose_check.program(module)] == ["Of … runs the last is shown."]
