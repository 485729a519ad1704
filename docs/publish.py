"""Puts a batch's runs, or an executed study, into docs/results, where everybody can read them.

    .venvs/lab/bin/python docs/publish.py BATCH cpu-2-cores/demo
    .venvs/lab/bin/python docs/publish.py Study_Loader.ipynb cpu-2-cores

Of each finished run the record, the trace and the executed notebook are kept, without this
machine's paths; the report is made of these, and so are the README's own figures, if the batch is
the one they come from. What lay in the folder before is replaced. A study is a notebook that
papermill has executed; its figures in the README are held to it by a test.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd

from helpers import paths, report

RESULTS = paths.ROOT / "docs" / "results"
STUDIES = RESULTS / "cpu-2-cores"
IN_README = STUDIES / "demo"


def publish(batch: str, target: Path) -> list[str]:
    """Copies the runs and makes the report; the names of the runs' folders."""
    shutil.rmtree(target, ignore_errors=True)
    found = []
    for record in sorted((paths.RUNS / batch).glob("*/record.json")):
        if json.loads(record.read_text(encoding="utf-8"))["state"] != "finished":
            continue
        folder = target / record.parent.name
        folder.mkdir(parents=True)
        for file in [record, *record.parent.glob("trace*.jsonl")]:
            (folder / file.name).write_text(_anywhere(file.read_text("utf-8")), "utf-8")
        _copy_notebook(record.parent / "notebook.ipynb", folder / "notebook.ipynb")
        found.append(folder.name)
    report.write([target])
    _format(target)
    return found


def publish_study(executed: Path, target: Path) -> list[str]:
    """Copies one executed study; its name."""
    name = executed.name
    if not (paths.NOTEBOOKS / name).exists() or not name.startswith("Study_"):
        raise SystemExit(f"{executed}: not a study; a study is notebooks/Study_*.ipynb, executed")
    _copy_notebook(executed, target / name)
    _format(target / name)
    return [name]


def _copy_notebook(source: Path, target: Path) -> None:
    notebook = json.loads(_anywhere(source.read_text("utf-8")))
    notebook["metadata"].pop("papermill", None)
    studies = Path(os.path.relpath(STUDIES, target.parent)).as_posix()
    for cell in notebook["cells"]:
        cell["metadata"].pop("papermill", None)  # times of every cell: another diff each time
        cell["metadata"].pop("execution", None)
        if cell["cell_type"] == "markdown":  # a link to the notebook beside it
            lines = "".join(cell["source"]).replace("](Study_", f"]({studies}/Study_")
            cell["source"] = lines.replace("](./", "](").splitlines(keepends=True)
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    target.write_text(text, "utf-8")


def _format(target: Path) -> None:
    """Papermill's own cell is not as ruff would have it."""
    ruff = Path(sys.executable).with_name("ruff")
    subprocess.run([ruff, "format", "--quiet", target], check=True)


def _anywhere(text: str) -> str:
    return text.replace(f"{paths.ROOT}/", "")


def readme(text: str, runs: pd.DataFrame) -> str:
    """The README with the AUC and the time of each row of its table from these runs."""
    for label, run in runs.set_index("label").iterrows():
        cells = f"| {label} | {run['mean_auc']:.3f} | {run['seconds']:.0f} s |"
        text, rows = re.subn(rf"^\| {label} \|[^|]*\|[^|]*\|", cells, text, flags=re.M)
        if rows != 1:
            raise SystemExit(f"README.md: {rows} rows of {label}")
    return text


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit((__doc__ or "").strip())
    target = RESULTS / sys.argv[2]
    if sys.argv[1].endswith(".ipynb"):
        print(target, *publish_study(Path(sys.argv[1]), target), sep="\n  ")
        return
    print(target, *publish(sys.argv[1], target), sep="\n  ")
    if target == IN_README:
        page = paths.ROOT / "README.md"
        runs = pd.read_csv(target / "csv" / "runs.csv")
        paths.write_atomically(page, readme(page.read_text(encoding="utf-8"), runs))


if __name__ == "__main__":
    main()
