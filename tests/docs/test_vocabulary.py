"""One word per thing: the words that have a better one are found wherever a reader meets them."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import prose_words
import pytest

from helpers import paths

WHERE = (
    *("helpers", "data_prep", "gpumon", "environments", "tools", "benchmarks", "recipes"),
    *("notebooks", "docs", "README.md", "CONTRIBUTING.md", "Makefile"),
)
SUFFIXES = {".py", ".md", ".toml", ".html", ".js", ".json", ".ipynb", ".in", ""}
LEFT_OUT = (
    "docs/results/",  # as they were when they ran
    "environments/pillow-stand-in/",  # the name of a distribution in a lock
)
FORMER_NAMES = {
    "tools/prose_words.py",
    "helpers/commands/parser.py",
    "helpers/recipe/renamed.py",
    "helpers/runner/sweep_file.py",
    "helpers/record/earlier_schemas.py",
}
"""Tables of words and names with today's."""

WORDS = re.compile(rf"\b(?:{'|'.join(prose_words.EVERYWHERE)})\b", re.IGNORECASE)


def files() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *WHERE],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = paths.ROOT / name
        told = name.startswith(LEFT_OUT) or name in FORMER_NAMES
        if path.suffix in SUFFIXES and path.is_file() and not told:
            yield path


def text(path: Path) -> str:
    """What a reader sees of a file: all of it, and of a notebook the cells."""
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return content
    return "\n".join("".join(cell["source"]) for cell in json.loads(content)["cells"])


def found(content: str) -> list[str]:
    return [match[0] for match in WORDS.finditer(content.replace("_", " "))]


@pytest.mark.parametrize("where", WHERE)
def test_each_thing_is_called_by_its_word(where: str) -> None:
    lines = [
        f"{path.relative_to(paths.ROOT)}:{number}: {word}"
        for path in files()
        if path.relative_to(paths.ROOT).parts[0] == where
        for number, line in enumerate(text(path).splitlines(), start=1)
        for word in found(line)
    ]
    assert lines == [], "tools/prose_words.py has the words to use"


def test_file_names_say_what_is_inside() -> None:
    vague = r"apart|told|letters|meeting|mine|elsewhere|meaning|cells|so_far|in_world|three_answers"
    names = [path.stem for path in files() if path.suffix == ".py"]
    assert [name for name in names if re.fullmatch(vague, name)] == []


def test_the_glossary_is_short() -> None:
    glossary = (paths.ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| ([^|]+?) \| (?!meaning)[^-]", glossary, re.MULTILINE)
    assert 15 <= len(terms) == len(set(terms)) <= 25


def test_the_check_can_fail() -> None:
    assert found("The luggage of nobody, in a batch of runs") == [
        "luggage", "nobody", "batch of runs"
    ]  # fmt: skip
    assert found("def failed_in_roll_call(): ...") == ["roll call"]
    assert found("A batch of images, and a virtual environment") == []
