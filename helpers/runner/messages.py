"""Print the plan before the runs, each outcome, and the final table."""

from typing import Any

from helpers import record, terminal
from helpers.frameworks import devices
from helpers.record import tasks
from helpers.results import comparability
from helpers.runner import estimate, experiments, locks, preflight, recipes
from helpers.runner.estimate import History
from helpers.runner.experiments import Experiment
from helpers.runner.plans import RunState, counted
from helpers.terminal import say


def announce(experiment: Experiment, history: History) -> None:
    """Print the plan: kept runs, runs to do, skipped runs with the reason, and the time."""
    kept = [state for state in experiment.runs if experiment.is_finished(state)]
    again = f", {len(kept)} of them finished before" if kept else ""
    verb = "Resuming experiment" if experiment.resumed else "Experiment"
    say(f"{verb} {experiment.name}: {counted(len(experiment.runs), 'run')}{again}")
    if settings := experiment.plan.settings():
        say(f"  every run with {settings}")
    for line in recipes.in_words(experiment.plan):
        say(f"  {line}")
    to_run = []
    warned = devices.crowded(max((run.devices for run in experiment.runs), default=0))
    if warned and not devices.visible():
        say(f"  {warned}")
    problems: dict[tuple[Any, ...], str | None] = {}  # thousands of runs have few different ones
    for state in experiment.runs:
        key = state.label, state.devices, state.nodes, state.execution
        if key not in problems:
            problems[key] = preflight.why_skipped(experiment.plan, state)
        if experiment.is_finished(state):
            note = "finished before, kept"
        elif problems[key]:
            note = f"will be skipped: {problems[key]}"
        else:
            to_run.append(state)
            note = f"environment {state.kernel}{_about(history, state)}"
            if state.state != "waiting":
                note += f"; again, earlier attempt: {experiments.how_it_ended(state)}"
        say(f"  {state.title}, {note}")
    if to_run:
        say(_estimate(history, to_run))
    say()


def outcome(state: RunState) -> str:
    """``finished after 3:05``, ``failed after 0:12: ValueError: ...``."""
    after = "" if state.seconds is None else f" after {terminal.clock(state.seconds)}"
    if state.earlier:
        after += f" (attempt {len(state.earlier) + 1})"
    return f"{state.state}{after}" + (f": {state.reason}" if state.reason else "")


def figures(experiment: Experiment, state: RunState) -> tuple[str, str]:
    """The test's metric with ± half its 95 % interval, and images/s; dashes for unfinished runs."""
    if (content := _finished(experiment, state)) is None:
        return "-", "-"
    metric = tasks.of(content["recipe"]).metric
    value, low, high = metric.of(content["test"])
    text = "-" if value is None else metric.text(value)
    if low is not None and high is not None:
        text = f"{text.removesuffix(' %')} ± {metric.text((high - low) / 2)}"
    return text, f"{content['training']['images_per_second']:.1f}"


def disturbed(experiment: Experiment, state: RunState) -> str:
    """What other programs used of a finished run's cores, if that was too much; else nothing."""
    content = _finished(experiment, state)
    if not content or not comparability.disturbed(content):
        return ""
    return record.other_programs(content["other_programs"])


def final_table(experiment: Experiment) -> str:
    """A table with one row per run, then notes on single runs.

    A run has a note if it did not finish, needed another attempt, or has times that are not
    comparable.
    """
    varied = any(state.variant for state in experiment.runs)
    rows = []
    marks: dict[str, str] = {}  # by the run's title: why its times are not comparable
    for state in experiment.runs:
        seconds = "-" if state.seconds is None else terminal.clock(state.seconds)
        apart = [state.variant.replace("-", " ") or "-"] * varied
        name = [state.label, state.on, *apart]
        trained = "-"  # with validation, as the report has it
        if content := _finished(experiment, state):
            trained = terminal.clock(content["training"]["seconds"])
            marks[state.title] = ", ".join(comparability.marks(content))
        rows.append([*name, state.state, seconds, trained, *figures(experiment, state)])
    task = recipes.task(experiment.plan)
    tested = f"Test {task.metric.short}"
    named = ["Notebook", "Devices", *["Variant"] * varied]
    header = [*named, "State", "Time", "Training", tested, "Images/s"]
    lines = [terminal.table(header, rows)]
    if any("±" in row[-2] for row in rows):
        of = "the mean, " if task.metric.short != task.metric.whole else ""
        lines.append(f"{tested}: {of}± half its 95 % interval over the test part")
    for state in experiment.runs:
        if state.reason:
            lines.append(f"{state.title}, {state.state}: {state.reason}")
        lines += [f"{state.title}, earlier attempt: {came}" for came in state.earlier]
        if marked := marks.get(state.title):
            lines.append(f"{state.title}, {marked}: its times are not comparable")
    return "\n".join(lines)


def _finished(experiment: Experiment, state: RunState) -> dict[str, Any] | None:
    """The record of a run that finished; None if it did not."""
    if state.state != "finished":
        return None
    return experiments.record_of(experiment.folder / state.folder) or None


def where_to_look(experiment: Experiment, problems: list[str]) -> int:
    """Print where the results are and what went wrong; return the exit code."""
    bad = [state for state in experiment.runs if state.state != "finished"]
    for name, hint in (
        ("report.html", "in any browser; one self-contained file to share"),
        ("Compare.ipynb", "'make lab' opens JupyterLab"),
    ):
        if (experiment.folder / name).exists():
            say(f"Look at  {experiment.folder / name}  ({hint})")
    for problem in problems:
        say(f"error: {problem}", error=True)
    say(f"Each run's notebook, record and trace: {experiment.folder}")
    if bad:
        again = ", or submit the job again" if locks.in_job() else ""
        say(
            f"error: {len(bad)} of {len(experiment.runs)} runs did not finish; "
            f"fix the cause, then: rosetta run --resume {experiment.name}{again}",
            error=True,
        )
    return 1 if bad or problems else 0


def _about(history: History, state: RunState) -> str:
    guess = history.of(state)
    if guess is None:
        return ""
    clock = terminal.clock
    if guess.runs == 1:
        return f", about {clock(guess.seconds)} (as 1 earlier run)"
    return (
        f", about {clock(guess.seconds)} ({guess.runs} earlier runs took "
        f"{clock(guess.low)} to {clock(guess.high)})"
    )


def _estimate(history: History, to_run: list[RunState]) -> str:
    seconds, unknown = estimate.total(history, to_run)
    if unknown == len(to_run):
        return (
            "Estimate: none, because no earlier run here had the same notebook, settings, data and "
            "devices"
        )
    rest = f", and {unknown} more without an earlier run to go by" if unknown else ""
    known = counted(len(to_run) - unknown, "run")
    return f"Estimate: about {terminal.clock(seconds)} for {known}{rest}"
