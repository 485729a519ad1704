"""Puts a batch's runs into docs/results, where everybody can read them.

    .venvs/lab/bin/python docs/publish.py BATCH cpu-2-cores/demo

Of each finished run the record, the trace and the executed notebook are kept, without this
machine's paths; the report is made of these, and so are the README's own figures, if the batch is
the one they come from. What lay in the folder before is replaced.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd

from helpers import paths, report

RESULTS = paths.ROOT / "docs" / "results"
IN_README = RESULTS / "cpu-2-cores" / "demo"


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
        notebook = json.loads(_anywhere((record.parent / "notebook.ipynb").read_text("utf-8")))
        notebook["metadata"].pop("papermill", None)
        for cell in notebook["cells"]:  # times of every cell: another diff each time
            cell["metadata"].pop("papermill", None)
            cell["metadata"].pop("execution", None)
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        (folder / "notebook.ipynb").write_text(text, "utf-8")
        found.append(folder.name)
    report.write([target])
    ruff = Path(sys.executable).with_name(
        "ruff"
    )  # papermill's own cell is not as ruff would have it
    subprocess.run([ruff, "format", "--quiet", target], check=True)
    return found


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
    print(target, *publish(sys.argv[1], target), sep="\n  ")
    if target == IN_README:
        page = paths.ROOT / "README.md"
        runs = pd.read_csv(target / "csv" / "runs.csv")
        paths.write_atomically(page, readme(page.read_text(encoding="utf-8"), runs))


if __name__ == "__main__":
    main()
