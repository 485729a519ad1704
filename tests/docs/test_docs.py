"""What the README and the guides name is there: links, commands, options, pages, numbers."""

import ast
import contextlib
import io
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import publish_results
import pytest

from data_prep import __main__ as data_prep_command
from gpumon import __main__ as gpumon_command
from helpers import __main__ as rosetta_command
from helpers import paths
from helpers.fairness import reference_checks

ROOT = paths.ROOT
OUTSIDE = ("tests/README.md", "tests/gpu/README.md", "benchmarks/RESULTS.md")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / page for page in OUTSIDE)]
)
GUIDES = [page for page in PAGES if str(page.relative_to(ROOT)) not in OUTSIDE]
COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "rosetta": rosetta_command.main,
    "data-prep": data_prep_command.main,
    "gpumon": gpumon_command.main,
}
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FORGE = ("../../", "../../issues")  # from README.md on a forge: this repository, its issues


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    return BLOCK.sub("", page.read_text(encoding="utf-8"))


def commands(page: Path) -> Iterator[list[str]]:
    """Every command of ours that a page shows, in a block or within a line, as its words."""
    lines = [
        line
        for kind, text in BLOCK.findall(page.read_text(encoding="utf-8"))
        if kind in ("console", "bash")
        for line in text.replace("\\\n", " ").splitlines()
    ]
    lines += [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(page))]
    for line in lines:
        with contextlib.suppress(ValueError):  # a quotation mark without its partner: no command
            for words in both(shlex.split(line, comments=True)):
                if len(words) > 1 and (words[0] == "make" or Path(words[0]).name in COMMANDS):
                    yield [Path(words[0]).name, *words[1:]]
                elif words and words[0].startswith(".venvs/lab/bin/"):
                    yield words


def both(words: list[str]) -> list[list[str]]:
    """The commands on a line: `one && two`."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "&&":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def help_of(program: str, words: list[str]) -> str:
    """The --help of a program, or of its command that ``words`` begin with."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), pytest.raises(SystemExit) as ended:
        COMMANDS[program]([*words[:1], "--help"])
    assert ended.value.code == 0, f"{program} {words[0]} is no command"
    return said.getvalue()


def unknown_options(program: str, words: list[str]) -> list[str]:
    words = words[: words.index("--")] if "--" in words else words
    options = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    known = re.findall(r"(?<![\w-])--?[a-z][\w-]*", help_of(program, words))
    return sorted(options - set(known))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        if "://" in target or (page.name == "README.md" and target in FORGE):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name(page)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.M)
            assert anchor in {slug(heading) for heading in headings}, f"{name(page)}: {target}"


def slug(heading: str) -> str:
    """A heading's address where GitHub and mkdocs make the same of it."""
    bare = re.sub(r"[^\w\s-]", "", heading.lower())
    return "differs" if re.search(r"\s\s", bare) else re.sub(r"\s", "-", bare)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_shown_can_be_given(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for words in commands(page):
        if words[0].startswith(".venvs"):
            assert (Path(sys.executable).parent / Path(words[0]).name).exists(), words
        elif words[0] == "make" and re.fullmatch("[a-z]+", words[1]):
            assert words[1] in targets, f"{name(page)}: make {words[1]}"
            options = shlex.split(" ".join(words[2:]).removeprefix("ARGS="))
            if words[1] == "compare":
                assert unknown_options("rosetta", ["run", *options]) == [], f"{name(page)}: {words}"
        elif words[0] in COMMANDS:
            assert unknown_options(words[0], words[1:]) == [], f"{name(page)}: {words}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_python_on_a_page_is_python(page: Path) -> None:
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "python":
            ast.parse(text)


DEMO = "docs/results/cpu-2-cores/demo/report.md"
SOURCES = {
    "README.md": (DEMO, "recipes/chexnet.toml"),
    "docs/cpu-devices.md": ("helpers/results/comparability.py",),
    "docs/experiments.md": (
        *("helpers/runner/hangs.py", "helpers/results/regression.py", "tests/docs/test_pages.py"),
    ),
    "docs/gpumon.md": ("gpumon/diagnosis.py", "gpumon/gpu.py", "gpumon/host.py"),
    "docs/many-machines.md": ("helpers/runner/slurm.py",),
    "docs/notebooks.md": ("helpers/training/measurement_rounds.py",),
    "docs/report.md": (DEMO, "helpers/results/comparability.py", "helpers/results/caveats.py"),
    "docs/time-attribution.md": ("helpers/results/waits.py", "helpers/training/attribution.py"),
    "docs/uncertainty.md": ("helpers/results/best.py",),
}
"""The files that decide the settings on a page, or from which its example is."""
NUMBER = r"(?<![\w.#])\d+(?:,\d{3})*(?:\.\d+)?"
WORDS = {
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "ten": 10,
    "twenty": 20,
    "thirty": 30,
}
UNIT = (
    r"(?:images/s|seconds?|minutes?|hours?|min|ms|[hs]|[KMGT]B|%|times (?:as|more|less))(?![\w/])"
)
MEASURED = re.compile(
    rf"({NUMBER}|\b(?:{'|'.join(WORDS)}))(?: (?:to|and|or) ({NUMBER}|{'|'.join(WORDS)}))? ({UNIT})"
    rf"|AUC (?:of )?({NUMBER})"
)
LISTED = re.compile(rf"({NUMBER}(?:(?:,| to| and|;| \() ?{NUMBER})*)\)? ({UNIT})")
LEVEL = "95", "%"  # of every interval


def numbers_in(text: str) -> set[float]:
    digits = (number.replace(",", "") for number in re.findall(NUMBER, text))
    return {
        *map(float, digits),
        *(WORDS[word] for word in re.findall(r"[a-z]+", text) if word in WORDS),
    }


def of_unit(text: str, unit: str) -> set[float]:
    """The numbers that ``text`` gives in a unit; all of its numbers if it gives none in it."""
    listed = [found for found, its in LISTED.findall(text) if its[:1] == unit[:1]]
    return numbers_in(" ".join(listed) or text)


def paragraphs(page: Path) -> Iterator[str]:
    """Sections in paragraphs, each table with what is written before and after it."""
    blocks = re.split(r"\n\n+", prose(page))
    for before, block, after in zip(["", *blocks], blocks, [*blocks[1:], ""], strict=False):
        yield "\n\n".join((before, block, after)) if block.startswith("|") else block


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_every_measured_number_is_in_its_source(page: Path) -> None:
    """Rounded, perhaps, to the digits that the page gives.

    The source is the section of the measurement log, or the record, to which the paragraph has a
    link; without a link, the files of ``SOURCES``.
    """
    log = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    sections = {slug(part.partition("\n")[0]): part for part in re.split(r"^#+ ", log, flags=re.M)}
    files = "".join(
        (ROOT / file).read_text(encoding="utf-8") for file in SOURCES.get(name(page), ())
    )
    lacking = []
    for block in paragraphs(page):
        anchors = re.findall(r"\]\([./]*benchmarks/RESULTS\.md#(.+?)\)", block)
        records = re.findall(r"\]\((?:docs/)?(results/.+?\.(?:md|csv|json))\)", block)
        linked = "".join((ROOT / "docs" / record).read_text(encoding="utf-8") for record in records)
        linked += "".join(sections[anchor] for anchor in anchors)
        text = " ".join(re.sub(r"\]\([^)]*\)", "]", block).split())
        for *numbers, unit, auc in MEASURED.findall(text):
            known = of_unit(linked, unit) if linked else numbers_in(files)
            shares = {100 * each for each in known} if unit == "%" else set()
            for number in filter(None, (*numbers, auc)):
                value = float(WORDS.get(number, number.replace(",", "")))
                figures = number.replace(".", "").replace(",", "")
                digits = len(figures.strip("0") if value >= 100 else figures.lstrip("0")) or 1
                rounded = {float(f"{each:.{digits}g}") for each in known | shares}
                if (number, unit) != LEVEL and value not in rounded:
                    lacking.append(f"{number} {unit}")
    assert not lacking, f"{name(page)}: no source has {', '.join(lacking)}"


def test_the_site_has_every_page() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert f" - {page.name}\n" in site, f"{page.name} is not in mkdocs.yml"


def test_readme_numbers_are_those_measured() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.search(r"^\| \| one device.*?\n\n", text, re.M | re.S)
    assert rows
    table = [
        [c.strip() for c in line.split("|")[1:-1]] for line in rows[0].splitlines()[2:] if line
    ]
    shown = {row[0]: row[1:] for row in table}
    folder = ROOT / "docs" / "results" / "cpu-2-cores" / "demo" / "csv"
    repeats = pd.read_csv(folder / "repeats.csv")
    assert shown.keys() == set(repeats["label"])
    assert (repeats["runs"] >= 3).all(), "a number of fewer seeds has no range"
    for label, runs in repeats.groupby("label"):
        assert shown[str(label)] == publish_results.cells(runs)
    for record in folder.parent.glob("*/record.json"):
        cpu = json.loads(record.read_text(encoding="utf-8"))["hardware"]["cpu"]
        assert cpu in text, f"README.md names another machine than {record}"


def test_every_row_of_the_fairness_check_is_explained() -> None:
    text = (ROOT / "docs" / "fairness-rows.md").read_text(encoding="utf-8")
    sources = [
        *(ROOT / "helpers" / "fairness").glob("*.py"),
        ROOT / "helpers" / "training" / "measuring.py",
    ]
    made: list[str] = []
    for code in (source.read_text(encoding="utf-8") for source in sources):
        constants = dict(re.findall(r'^([A-Z_]+) = "([^"]+)"', code, re.M))
        named = re.findall(r"Check\(\s*([A-Z_]+),", code)
        made += [constants[each] for each in named if each in constants]
        made += re.findall(r'Check\(\s*f?"([^"{]+)', code)
        made += re.findall(r'names? = \(?"([^"]+)"', code)
    assert len(set(made)) > 20
    assert [row for row in made if row.strip() not in text] == []
    for limit in (reference_checks.EXACT, reference_checks.SINGLE, reference_checks.STATISTICS):
        mantissa, exponent = f"{limit:.0e}".split("e")
        assert f"{mantissa}e{int(exponent)}" in text


def test_every_guarantee_names_tests_that_are_there() -> None:
    page = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    page = page.split("## Guarantees")[1]
    rows = re.findall(r"^\| [A-Z`].* \| (`tests/.*) \|$", page, re.M)
    guaranteed = re.findall(r"^\| (?!guarantee)\S", page, re.M)
    assert len(rows) == len(guaranteed) > 40, "a guarantee without a test"
    for row in rows:
        for group in row.split("; "):
            file, *names = re.findall(r"`([^`]+)`", group)
            tests = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
            there = {node.name for node in tests if isinstance(node, ast.FunctionDef)}
            assert names and there.issuperset(names), f"{file}: {set(names) - there}"
