"""What the notebook's process shows and records, also of what its replicas tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from IPython.display import display
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from helpers import terminal
from helpers.fairness import check_results
from helpers.frameworks import rank_info
from helpers.record import sections, tasks
from helpers.training import attribution, checkpoint, measurement_rounds, samplers
from helpers.training.figure_style import WIDTH, heading, panels, styled
from helpers.training.run_state import RunState

EPOCH = {
    "learning_rate": "learning rate",
    "train_loss": "training loss",
    "valid_loss": "validation loss",
    **{m.of_epoch: m.of_split("validation") for t in tasks.TASKS.values() for m in t.metrics},
    "images_per_second": "images/s",
    "train_seconds": "training (s)",
    "valid_seconds": "validation (s)",
}
"""The fields of an epoch that its table shows, and their names there."""
TRAINING, VALIDATION = "#A9B7C2", "#0072B2"


def add(run: RunState, section: str, content: Any) -> None:
    run.record.add(section, content)


def remove(run: RunState, *names: str) -> None:
    run.record.remove(*names)


def say(run: RunState, text: str) -> None:
    print(text, end="", flush=True)


def progress(run: RunState, row: Any) -> None:
    run.lines.heard(row)


def table(run: RunState, content: pd.DataFrame) -> None:
    """Display a table with its texts whole."""
    with pd.option_context(
        "display.max_colwidth", None, "display.width", 100, "display.max_columns", None
    ):
        display(content)


def trained(run: RunState, history: list[dict[str, Any]], held: int | None) -> None:
    run.held = held
    display(learning(history, tasks.TASKS[run.recipe.task]))
    table(run, epochs(history))


def tested(run: RunState, content: Mapping[str, Any]) -> None:
    """Show the record's section ``test``."""
    task = tasks.TASKS[run.recipe.task]
    for metric in task.metrics:
        value, low, high = (metric.text(each) for each in metric.of(content))
        print(f"{tasks.capital(metric.of_split('test'))} {value} (95 % interval {low} to {high})")
    print("Intervals leave out the variation between runs with other initial weights or order.")
    table(run, pd.DataFrame(content[task.outputs]).round(3).fillna("-"))


@styled
def learning(history: Sequence[Mapping[str, Any]], task: tasks.Task) -> Figure:
    """Loss and the task's metrics over the epochs; ``history`` as the record's ``epochs``."""
    table = pd.DataFrame(history)
    figure, (left, right) = panels(2, WIDTH, 2.6)
    line: dict[str, Any] = {"lw": 2, "marker": "o"}
    for part, colour, of in (("training", TRAINING, "train"), ("validation", VALIDATION, "valid")):
        left.plot(table["epoch"], table[f"{of}_loss"], color=colour, label=part, **line)
    for metric, style in zip(task.metrics, ("-", "--"), strict=False):
        drawn = metric.scale * table[metric.of_epoch].astype(float)  # None where there is none
        if metric is task.metric or drawn.notna().any():
            right.plot(
                table["epoch"], drawn, color=VALIDATION, ls=style, label=metric.short, **line
            )
    for axes in (left, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("epoch")
        if len(axes.lines) > 1:
            axes.legend(frameon=False)
    heading(left, "Loss")
    heading(right, task.metric.heading)
    return figure


def epochs(history: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row an epoch; a column without any value is left out."""
    table = pd.DataFrame(history).set_index("epoch").filter([*EPOCH])
    return table.dropna(axis=1, how="all").rename(columns=EPOCH).round(4)


def summary(content: Mapping[str, Any]) -> pd.DataFrame:
    """All measurements of a run, as text. ``content`` is its record."""
    training, metric = content["training"], tasks.metric_of(content["recipe"])
    value, low, high = (metric.text(each) for each in metric.of(content["test"]))
    rows = {
        "training (min:s)": terminal.clock(training["seconds"]),
        "first step": f"{training['first_step_seconds']:.1f} s",
        metric.of_split("test"): f"{value} ({low} to {high})",
    }
    for kind, name in measurement_rounds.PHASES.items():
        if found := content.get(kind):
            rounds = found["rounds"]
            ends = f"{min(rounds):,.0f} to {max(rounds):,.0f}"
            rows[f"images/s, {name}"] = f"{found['images_per_second']:,.0f} ({ends})"
    shares = content["attribution"]
    rows |= {f"{name} in an epoch": attribution.in_words(shares, name) for name in shares["shares"]}
    if peak := content.get("memory", {}).get("peak_bytes"):
        rows["memory of the fullest device"] = f"{peak / 2**30:.2f} GiB"
    if joules := content.get("energy", {}).get("joules"):
        rows["energy of the GPUs in training"] = f"{joules:,.0f} J"
    if other := content.get("other_programs"):
        rows["other programs"] = sections.other_programs(other).removeprefix("other programs used ")
    checks = [check["verdict"] for check in content["fairness"]["checks"]]
    rows["fairness check"] = check_results.counted(checks)
    return pd.DataFrame({"measured (95 % interval)": rows})


def chart(run: RunState) -> Any:
    """Return the monitor's chart of the whole run, a lane for each device."""
    samplers.stop(run.monitor)
    rank_info.exchange(None)  # rank 0 reads the traces of all hosts
    if run.rank:
        return None
    trace = samplers.read(run.folder)
    utilisation = trace.summary()
    run.record.add("monitor", trace.metadata())
    run.record.add("energy", sections.energy(utilisation))
    run.record.add("memory", sections.memory(utilisation, run.held))
    return trace.plot()


def report(run: RunState) -> None:
    """Show where the time went and what was measured, and finish the record."""
    if not rank_info.exchange("monitor" in run.record.content)[0]:
        chart(run)
    if run.rank:
        return
    content: Any = run.record.content
    shares = attribution.attribute(content, run.setup.short)
    run.record.add("attribution", shares)
    print(shares["sentence"])
    table(run, summary(run.record.content))
    path = run.record.finish()
    print(f"{path}\nWrite the report with: .venvs/lab/bin/rosetta report {path.parents[1].name}")
    # Last: only a run that is whole needs none any more.
    (run.folder / checkpoint.FILE).unlink(missing_ok=True)
