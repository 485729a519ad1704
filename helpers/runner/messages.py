"""Print the plan before the runs, each outcome, and where the results are."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

from helpers import terminal
from helpers.recipe import lookup
from helpers.record import sections, tasks
from helpers.results import comparability
from helpers.runner import preflight
from helpers.runner.experiments import REPORT, Experiment
from helpers.runner.plans import Plan, PlannedRun, counted
from helpers.terminal import say


def announce(experiment: Experiment) -> None:
    """Print the plan: kept runs, runs to do, and skipped runs with the reason."""
    states = {run: _state(experiment.record_of(run)) for run in experiment.runs}
    kept = sum(state == "finished" for state, _ in states.values())
    again = f", {kept} of them finished before" if kept else ""
    verb = "Resuming experiment" if experiment.resumed else "Experiment"
    say(f"{verb} {experiment.name}: {counted(len(experiment.runs), 'run')}{again}")
    if settings := experiment.plan.settings():
        say(f"  every run with {settings}")
    for line in _recipe(experiment.plan):
        say(f"  {line}")
    skipped = cache(partial(preflight.why_skipped, experiment.plan))
    for run, (state, reason) in states.items():
        if state == "finished":
            note = "finished before, kept"
        # Thousands of runs have few different reasons.
        elif problem := skipped(replace(run, seed=0, variant="")):
            note = f"will be skipped: {problem}"
        else:
            note = f"environment {run.kernel}"
            if state != "waiting":
                note += f"; again, earlier attempt: {state}" + (f": {reason}" if reason else "")
        say(f"  {run.title}, {note}")
    say()


def _recipe(plan: Plan) -> list[str]:
    """One line each for the recipe's file and for the custom code that will run."""
    if not plan.recipe.endswith(".toml"):
        return []
    recipe = lookup(plan.recipe)
    lines = [f"recipe {plan.recipe}, SHA-256 {recipe.sha256[:12]}"]
    return lines + [
        f"custom code {recipe.beside}/{file}, SHA-256 {digest[:12]}"
        for file, digest in recipe.code.items()
    ]


def _state(content: Mapping[str, Any]) -> tuple[str, str]:
    return content["state"], content.get("reason") or ""


def outcome(experiment: Experiment, run: PlannedRun, seconds: float) -> str:
    """``finished after 3:05: 169.4 images/s, test AUC 0.750``, ``failed after 0:12: ...``."""
    content = experiment.record_of(run)
    state, reason = _state(content)
    said = f"{state} after {terminal.clock(seconds)}" + (f": {reason}" if reason else "")
    if state != "finished":
        return said
    metric = tasks.of(content["recipe"]).metric
    value, low, high = metric.of(content["test"])
    tested = "-" if value is None else metric.text(value)
    if low is not None and high is not None:
        tested = f"{tested.removesuffix(' %')} ± {metric.text((high - low) / 2)}"
    said += f": {content['training']['images_per_second']:.1f} images/s"
    said += f", test {metric.short} {tested}"
    if comparability.disturbed(content):
        said += f"; {sections.other_programs(content['other_programs'])}"
    return said


def where_to_look(experiment: Experiment, problems: list[str]) -> int:
    """Print where the results are and what went wrong; return the exit code."""
    if (page := experiment.folder / REPORT).exists():
        say(f"Look at {page} in any browser: one self-contained file to share")
    say(f"Compare.ipynb and each run's notebook, record and trace: {experiment.folder}")
    for problem in problems:
        say(f"error: {problem}", error=True)
    states = [(run, *_state(experiment.record_of(run))) for run in experiment.runs]
    bad = [(run, state, reason) for run, state, reason in states if state != "finished"]
    for run, state, reason in bad:
        say(f"{run.title}, {state}: {reason}")
    if bad:
        again = ", or submit the job again" if "SLURM_JOB_ID" in os.environ else ""
        say(
            f"error: {len(bad)} of {len(experiment.runs)} runs did not finish; "
            f"fix the cause, then: rosetta run --resume {experiment.name}{again}",
            error=True,
        )
    return 1 if bad or problems else 0
