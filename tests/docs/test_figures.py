"""A figure that several texts give is the same in all, and that of the file which decides it."""

import json
import re
import tomllib
from collections.abc import Iterator
from functools import cache

import pandas as pd
import publish_results
import pytest
from test_readme import locked, rows

from helpers import paths
from helpers.runner import plans

ROOT = paths.ROOT
WORDS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
NUMBERS = {word: str(number) for number, word in enumerate(WORDS.split())}
COUNT = rf"(?i:({'|'.join(NUMBERS)}|\d+))"
ENVIRONMENTS = ROOT / "environments"


@cache
def texts() -> dict[str, str]:
    """All public pages and the prose of the notebooks, each as one line without link targets."""
    found = {}
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "tests" / "README.md"]
    for path in [*pages, *paths.NOTEBOOKS.glob("*.ipynb")]:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            cells = json.loads(text)["cells"]
            text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        text = re.sub(r"\]\([^)]*\)|[\[*]|^> ", "", text, flags=re.MULTILINE)
        found[str(path.relative_to(ROOT))] = " ".join(text.split())
    return found


def given(pattern: str) -> Iterator[tuple[str, str]]:
    """Each figure that the pattern finds, as digits, and where."""
    for where, text in texts().items():
        for match in re.finditer(pattern, text):
            yield where, NUMBERS.get(match[1].lower(), match[1]).replace(",", "")


def toml(path: str) -> dict[str, object]:
    return tomllib.loads((ROOT / path).read_text(encoding="utf-8"))


def version(path: str) -> str:
    return str(toml(path)["project"]["version"])  # type: ignore[index]


def oldest_python() -> str:
    project = toml("gpumon/pyproject.toml")["project"]
    return str(project["requires-python"]).removeprefix(">=")  # type: ignore[index]


def nih(key: str) -> str:
    return str(json.loads((ROOT / "data_prep" / "nih_counts.json").read_text())[key])


def archives_gb() -> str:
    sources = json.loads((ROOT / "data_prep" / "sources.json").read_text())
    return f"{sum(each['bytes'] for each in sources['archives']) / 1e9:.1f}"


def demo(table: str, key: str) -> str:
    return str(toml("recipes/demo.toml")[table][key])  # type: ignore[index]


def published(label: str, devices: int) -> str:
    """The images/s of a label in the published demo, as README has it."""
    folder = ROOT / "docs" / "results" / "cpu-2-cores" / "demo" / "csv"
    repeats = pd.read_csv(folder / "repeats.csv")
    cells = publish_results.cells(repeats[repeats["label"] == label])
    return cells[(1, 2).index(devices)].split()[0]


HELD = {
    "frameworks": (
        rf"(?<!CheXNet )(?:in|all|of) {COUNT} frameworks\b",  # the article's were five
        str(len({name.split()[0] for name in rows()})),
    ),
    "notebooks of a first run": (rf"{COUNT} notebooks (?:take|ranked|on one)", str(len(rows()))),
    "runs of a first run": (r"1/(\d+)\] PyTorch_MultiGPU on 2 devices", str(len(rows()))),
    "framework notebooks": (
        rf"{COUNT} notebooks train the same",
        str(len(list(plans.framework_notebooks()))),
    ),
    "sections": (rf"(?<!section ){COUNT} sections", "14"),
    "studies": (
        rf"{COUNT} (?:notebooks that each measure|[Ss]tudies:)",
        str(len(list(paths.NOTEBOOKS.glob("Study_*.ipynb")))),
    ),
    "generated images": (r"(\d,\d{3}) X-ray-like images", "1600"),
    "the NIH's images": (r"(\d{3},\d{3}) (?:grey|images|chest)", nih("images")),
    "the NIH's archives": (r"(\d\d\.\d) GB(?:: one hour| \|)", archives_gb()),
    "the demo's crop": (r"demo`? (?:at|densenet121) (\d+) px", demo("data", "crop")),
    "Python to begin with": (r"Python (3\.\d+) or newer with pip", oldest_python()),
    "Chainer": (r"Version (\d\.\d\.\d) is the last", *locked("chainer", "chainer")),
    "Horovod": (
        r"Horovod(?:'s last release,)? (\d\.\d+\.\d)",
        *locked("horovod-source", "horovod"),
    ),
    "images/s of two devices of Exp Loss": (
        r"two CPU devices trained (\d+) images/s", published("PyTorch Exp Loss", 2)
    ),
    "images/s of one device of Exp Loss": (
        r"one device trained (\d+)", published("PyTorch Exp Loss", 1)
    ),
}  # fmt: skip
"""What a text gives, as a pattern, and what the code or the published results say."""

AGREE = {
    "minutes of a first run": r"took (\d+ to \d+) minutes on two CPU cores",
    "GB to download": r"downloads (\d+) GB",
    "GB of disk": r"which use (\d+) GB",
    "minutes of all tests": r"(?:everything:|fresh clone \|) (\d+ to \d+) min",
    "driver for all environments": r"(\d{3}) or newer (?:for|works for) all",
    "drivers of an older PyTorch": r"(?:[Ww]ith|from) (\d{3}) to 579",
    "workers of a GPU": r"up to (\d+) (?:workers )?per (?:GPU|device)",
}
"""What no file decides: all texts have to agree."""


@pytest.mark.parametrize("name", HELD)
def test_a_figure_is_that_of_the_file_that_decides_it(name: str) -> None:
    pattern, decided = HELD[name]
    wrong = [(where, figure) for where, figure in given(pattern) if figure != decided]
    assert wrong == [], f"say {decided}: {wrong}"


@pytest.mark.parametrize("name", AGREE)
def test_texts_that_give_the_same_figure_agree(name: str) -> None:
    found = list(given(AGREE[name]))
    assert len({figure for _, figure in found}) <= 1, found


def test_most_figures_are_given() -> None:
    """Else the texts have other words, which the patterns miss."""
    patterns = [*(pattern for pattern, _ in HELD.values()), *AGREE.values()]
    assert sum(any(given(pattern)) for pattern in patterns) >= 0.75 * len(patterns)


def test_versions_of_frameworks_are_those_of_the_locks() -> None:
    wrong = []
    for row in rows().values():
        name = row.name.split()[0]
        locks = locked(row.kernel, row.module)
        wrong += [
            (where, name, found)
            for where, found in given(rf"\b{name} (\d+\.\d+\.\d+)\b")
            if found not in locks
        ]
    assert wrong == []


def test_the_project_has_one_version() -> None:
    (cited,) = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited == version("pyproject.toml")


def test_the_check_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"a.md": "Trained in five frameworks. Seven notebooks take long."}
    monkeypatch.setattr(f"{__name__}.texts", lambda: wrong)
    assert list(given(HELD["frameworks"][0])) == [("a.md", "5")]
    assert list(given(HELD["notebooks of a first run"][0])) == [("a.md", "7")]
