"""README.md and the pages that start: each number is that of the file that decides it."""

import re
import tomllib

from helpers import paths
from helpers.frameworks import ROWS, Row, capabilities

ROOT = paths.ROOT
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
DEMO = ROOT / "docs" / "results" / "cpu-2-cores" / "demo"
HOPPER = capabilities.Gpu("H100", (9, 0), "580.0")


def frameworks() -> dict[str, list[str]]:
    """The table's rows: version, data parallelism, multi-node, Hopper, status, by framework."""
    lines = [line for line in TEXT.splitlines() if line.startswith("| [")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return {re.sub(r"\[(.+?)\]\(.*", r"\1", name): rest for name, *rest in cells}


def rows() -> dict[str, Row]:
    """The rows that are trained unless others are named."""
    return {row.name: row for row in ROWS if not row.optional and not row.many_nodes_only}


def locked(environment: str, module: str) -> set[str]:
    """The versions of a framework in all locks of an environment, but of older GPUs'."""
    files = [ROOT / "environments" / f"{environment}{form}.txt" for form in ("", "-gpu")]
    text = "".join(file.read_text(encoding="utf-8") for file in files if file.exists())
    asked = (ROOT / "environments" / f"{environment}.in").read_text(encoding="utf-8")
    # PyTorch is installed as torch: the first that its environment asks a version of.
    names = [module, *re.findall(r"^(\w+)==", asked, re.MULTILINE)]
    found = (re.findall(rf"^{name}(?:-cpu|-cu\d+)?==(\S+)", text, re.MULTILINE) for name in names)
    return set(next(filter(None, found), ()))


def test_every_framework_has_a_row() -> None:
    lacks = rows().keys() - frameworks().keys()
    assert not lacks, f"README's table Frameworks lacks a row with a link for {sorted(lacks)}"
    assert frameworks().keys() == rows().keys()


def test_versions_are_those_of_the_locks() -> None:
    for name, row in rows().items():
        versions = locked(row.kernel, row.module)
        assert {frameworks()[name][0]} == versions, name
    (horovod,) = locked("horovod-source", "horovod")
    assert f"Horovod {horovod}" in TEXT


def test_the_project_has_one_version() -> None:
    (cited,) = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert cited == project["version"]


def test_nodes_and_gpus_are_those_that_the_code_knows() -> None:
    for name, row in rows().items():
        _, _, nodes, hopper, _ = frameworks()[name]
        assert (nodes == "yes") == (not row.one_node_only), name
        form = capabilities.best_form(row.kernel, [HOPPER])
        assert hopper == ("no" if form == "cpu" else "yes"), name


def test_the_annotated_report_has_the_numbers_of_the_report() -> None:
    page = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    page = " ".join(page.partition("\n## The first screen\n")[2].partition("\n## ")[0].split())
    report = (DEMO / "report.md").read_text(encoding="utf-8")
    shown = re.findall(r"\d[\d.]* \(\d[\d.]* to \d[\d.]*\)|\d+ %|\d+ of \d+", page)
    assert len(shown) > 6
    assert [number for number in shown if number not in report] == []
