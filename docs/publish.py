"""Puts a batch's runs, or an executed study, into docs/results, where everybody can read them.

.venvs/lab/bin/python docs/publish.py BATCH cpu-2-cores/demo
.venvs/lab/bin/python docs/publish.py Study_Loader.ipynb cpu-2-cores

    if what in shown:
        continue
    shown.add(what)
    _copy_notebook(record.parent / "notebook.ipynb", folder / "notebook.ipynb")
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
    found, shown = [], set()
    for record in sorted((paths.RUNS / batch).glob("*/record.json")):
        content = json.loads(record.read_text(encoding="utf-8"))
        if content["state"] != "finished":
            continue
        folder = target / record.parent.name
        folder.mkdir(parents=True)
        found.append(folder.name)
        what = content["run"]["notebook"], content["devices"]["count"]
        traces = record.parent.glob("trace*.jsonl") if what not in shown else ()
        for file in [record, *traces]:
            (folder / file.name).write_text(_anywhere(file.read_text("utf-8")), "utf-8")
        if what in shown:
            continue
        shown.add(what)
        _copy_notebook(record.parent / "notebook.ipynb", folder / "notebook.ipynb")
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


def cells(run: pd.Series) -> tuple[str, str]:
    """AUC and time of a row of ``repeats.csv``: ``0.753 (0.728 to 0.774)``, ``38 s (36 to 44)``."""
    auc, seconds = (
        [run[figure + end] for end in ("", "_low", "_high")] for figure in ("mean_auc", "seconds")
    )
    return (
        "{:.3f} ({:.3f} to {:.3f})".format(*auc),
        "{:.0f} s ({:.0f} to {:.0f})".format(*seconds),
    )


def readme(text: str, repeats: pd.DataFrame) -> str:
    """The README with the AUC and the time of each row of its table from these runs."""
    for label, run in repeats.set_index("label").iterrows():
        auc, seconds = cells(run)
        row = f"| {label} | {auc} | {seconds} |"
        text, rows = re.subn(rf"^\| {label} \|[^|]*\|[^|]*\|", row, text, flags=re.M)
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
        repeats = pd.read_csv(target / "csv" / "repeats.csv")
        paths.write_atomically(page, readme(page.read_text(encoding="utf-8"), repeats))


if __name__ == "__main__":
    main()
