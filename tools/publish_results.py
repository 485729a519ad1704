"""Copy an experiment's runs, or an executed study, to docs/results.

.venvs/lab/bin/python tools/publish_results.py NAME cpu-2-cores/demo
.venvs/lab/bin/python tools/publish_results.py Study_Loader.ipynb cpu-2-cores
.venvs/lab/bin/python tools/publish_results.py OUT nvidia-h100     what tests/gpu/gpu_run.py left
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import paths
from helpers.results import charts, comparison, report
from helpers.runner import notebook_links

RESULTS = paths.ROOT / "docs" / "results"
STUDIES = RESULTS / "cpu-2-cores"
IN_README = STUDIES / "demo"
PICTURE = paths.ROOT / "docs" / "images" / "report-seconds.png"
HOME = (str(paths.ROOT),)


def publish(batches: list[Path], target: Path, home: Sequence[str] = HOME) -> list[str]:
    """Copies the runs and makes the report; the names of the runs' folders.

    Of repeats the last one's notebook and traces come along, because the report shows that one.
    ``home`` are the folders of the machine they ran on, whose names are removed.
    """
    records = {
        path: json.loads(path.read_text(encoding="utf-8"))
        for batch in batches
        for path in sorted(batch.glob("*/record.json"))
    }
    finished = {path: it for path, it in records.items() if it["state"] == "finished"}
    if not finished:
        raise SystemExit(f"no finished run in {', '.join(map(str, batches)) or 'any batch'}")
    shutil.rmtree(target, ignore_errors=True)
    found = []
    by_start = sorted(finished, key=lambda path: str(finished[path]["run"]["started"]))
    last = {_what(finished[path]): path for path in by_start}
    for record, content in finished.items():
        folder = target / record.parent.name
        if folder.exists():  # another batch's
            folder = target / f"{record.parent.name}-{record.parent.parent.name}"
        folder.mkdir(parents=True)
        found.append(folder.name)
        shown = last[_what(content)] == record
        traces = record.parent.glob("trace*.jsonl") if shown else ()
        for file in [record, *traces]:
            (folder / file.name).write_text(_anywhere(file.read_text("utf-8"), home), "utf-8")
        if shown:
            _copy_notebook(record.parent / "notebook.ipynb", folder / "notebook.ipynb", home)
    report.write([target])
    _format(target)
    return found


def _what(content: dict[str, Any]) -> tuple[Any, ...]:
    """What repeats of a run share: the framework's row, the devices, and how they compute."""
    row = content["run"]["notebook"]
    recipe = content["recipe"]
    how = (recipe.get(key) for key in ("precision", "execution", "batch_size"))
    return row, content["devices"]["count"], *how


def place(name: str) -> Path:
    """The folder ``name`` of docs/results, for a batch: what it holds is replaced."""
    target = RESULTS / name
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)*", name, re.ASCII):
        raise SystemExit(f"{name!r}: name a folder of docs/results, such as nvidia-h100")
    if target.exists() and not (target / "report.html").exists():
        raise SystemExit(
            f"{target}: it exists and is not a published experiment; name another folder"
        )
    return target


def publish_check(out: Path, target: Path) -> list[str]:
    """Copies what a check on a machine with GPUs has left, its summary too; its runs' names."""
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    if not summary["gpus"]:
        raise SystemExit(f"{out}: no GPU trained, so nothing is published")
    home = summary.pop("folders")
    batches = [each for each in sorted((out / "runs").glob("*")) if not each.is_symlink()]
    found = publish(batches, target, home)
    pages = {"summary.md": (out / "summary.md").read_text("utf-8")}
    pages["summary.json"] = json.dumps(summary, indent=1) + "\n"
    for name, text in pages.items():
        (target / name).write_text(_anywhere(text, home), "utf-8")
    return found


def publish_study(executed: Path, target: Path) -> list[str]:
    """Copies one executed study; its name."""
    name = executed.name
    if not (paths.NOTEBOOKS / name).exists() or not name.startswith("Study_"):
        raise SystemExit(f"{executed}: not a study; a study is notebooks/Study_*.ipynb, executed")
    _copy_notebook(executed, target / name)
    _format(target / name)
    return [name]


def _copy_notebook(source: Path, target: Path, home: Sequence[str] = HOME) -> None:
    notebook = json.loads(_anywhere(source.read_text("utf-8"), home))
    notebook["metadata"].pop("papermill", None)
    folders = [source.parent, paths.NOTEBOOKS]
    notebook_links.rewrite(notebook["cells"], folders, target.parent, _executed)
    for cell in notebook["cells"]:
        cell["metadata"].pop("papermill", None)  # times of every cell: another diff each time
        cell["metadata"].pop("execution", None)
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    target.write_text(text, "utf-8")


def _executed(path: Path) -> Path:
    """The executed copy of a study, where one is published; any other file as it is."""
    study = STUDIES / path.name
    is_study = path.parent == paths.NOTEBOOKS.resolve() and path.name.startswith("Study_")
    return study if is_study and study.exists() else path


def _format(target: Path) -> None:
    """Papermill's own cell is not as ruff would have it."""
    ruff = Path(sys.executable).with_name("ruff")
    subprocess.run([ruff, "format", "--quiet", target], check=True)


def _anywhere(text: str, home: Sequence[str]) -> str:
    for folder in home:
        text = text.replace(f"{folder}/", "")
    return text


def cells(runs: pd.DataFrame) -> list[str]:
    """A framework's cells, from its rows of ``repeats.csv`` on one device and on two.

    Seconds of training on each, ``15.4 (15.0 to 15.8)``; on two seconds to the target, images/s
    in steady state and the AUC.
    """
    by_devices = runs.set_index("devices")
    each = [
        (1, "seconds", ".1f"),
        (2, "seconds", ".1f"),
        (2, "seconds_to_target", ".1f"),
        (2, "images_per_second", ".3g"),
        (2, "mean_auc", ".3f"),
    ]
    found = []
    for devices, column, form in each:
        middle, low, high = (by_devices.loc[devices, column + end] for end in ("", "_low", "_high"))
        found.append(f"{middle:{form}} ({low:{form}} to {high:{form}})")
    return found


def readme(text: str, repeats: pd.DataFrame) -> str:
    """The README with the measured cells of each row of its table from these runs."""
    for label, runs in repeats.groupby("label"):
        row = f"| {' | '.join([str(label), *cells(runs)])} |"
        text, rows = re.subn(rf"^\| {label} \|(?:[^|\n]*\|){{5}}", row, text, flags=re.M)
        if rows != 1:
            raise SystemExit(f"README.md: {rows} rows of {label}")
    return text


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit((__doc__ or "").strip())
    if sys.argv[1].endswith(".ipynb"):
        target = RESULTS / sys.argv[2]
        print(target, *publish_study(Path(sys.argv[1]), target), sep="\n  ")
        return
    target = place(sys.argv[2])
    if (Path(sys.argv[1]) / "summary.json").exists():
        print(target, *publish_check(Path(sys.argv[1]), target), sep="\n  ")
        return
    print(target, *publish([paths.RUNS / sys.argv[1]], target), sep="\n  ")
    if target == IN_README:
        page = paths.ROOT / "README.md"
        repeats = pd.read_csv(target / "csv" / "repeats.csv")
        paths.write_atomically(page, readme(page.read_text(encoding="utf-8"), repeats))
        chart = charts.parts(comparison.load(target))
        assert chart is not None  # a published experiment has runs
        chart.figure().savefig(PICTURE, dpi=100)


if __name__ == "__main__":
    main()
