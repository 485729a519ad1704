"""Export an experiment's runs to experiment trackers, with each target's own client.

No environment contains these clients: install the one you use into ``lab``. All targets write to a
folder and use no network.
"""

import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from helpers import paths
from helpers.errors import UserError, naming
from helpers.record import tasks
from helpers.results import comparison, machines, runs
from helpers.results.comparison import Entry

PROJECT = "rosetta"
Runs = Sequence[tuple[Entry, dict[str, float]]]
"""Each finished run, with the numbers of its row in :func:`helpers.results.runs.frame`."""


def write(experiment: str | Path, target: str, out: Path | None = None) -> tuple[Path, int]:
    """Write the finished runs of an experiment for a target; return their folder and number.

    Args:
        experiment: its name under ``runs/``, or its folder.
        target: one of :data:`TARGETS`.
        out: a new or empty folder; None: one in the experiment's folder.

    Raises:
        UserError: there is no such experiment or no finished run, the client is not installed, or
        the folder is not empty.
    """
    compared = comparison.load(experiment)
    folder = out or comparison.folder_of(experiment) / f"export-{target}"
    if not compared.finished:
        raise UserError(f"{experiment}: no run has finished, so there is nothing to export")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not empty: give another folder with --out")
    numbers = runs.frame(compared).select_dtypes("number").to_dict("records")
    package, writer = TARGETS[target]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with naming(folder), tempfile.TemporaryDirectory(dir=folder.parent) as home:
        part = Path(home) / folder.name
        part.mkdir()
        try:
            writer([*zip(compared.finished, numbers, strict=True)], part)
        except ModuleNotFoundError as error:
            raise UserError(
                f"export to {target} needs the package {package}: "
                f".venvs/lab/bin/python -m pip install {package}"
            ) from error
        part.replace(folder)  # all of it, or nothing
    return folder, len(compared.finished)


def _settings(entry: Entry) -> dict[str, Any]:
    """All settings as flat names: ``recipe.epochs``, ``version.torch``."""
    content = entry.content
    told = {
        "framework": entry.label,
        "devices": entry.devices,
        "device names": machines.models(content["devices"]),
        "machine": content["run"]["host"],
        "commit": content["run"]["commit"],
        "fairness check": "passed" if entry.comparable else "not passed",
        "recipe": content["recipe"],
        "version": content["framework"]["versions"],
    }
    return dict(pd.json_normalize(told).iloc[0])


def _started(entry: Entry) -> float:
    """The start of its training, in seconds since 1970."""
    started = datetime.fromisoformat(entry.content["run"]["started"]).timestamp()
    return entry.content.get("monitor", {}).get("start (unix s)") or started


def _epochs(entry: Entry) -> list[tuple[int, float, dict[str, float]]]:
    """The number of each epoch, its end in seconds since 1970, and its values by name."""
    epochs = pd.DataFrame(entry.content["epochs"]).select_dtypes("number")
    ends = _started(entry) + (epochs["train_seconds"] + epochs["valid_seconds"]).cumsum()
    rows = (row.dropna().to_dict() for _, row in epochs.iterrows())
    return [*zip(range(1, len(ends) + 1), ends, rows, strict=True)]


def _wandb(found: Runs, folder: Path) -> None:
    """Offline runs of Weights & Biases; ``wandb sync`` uploads them."""
    import wandb

    quiet = wandb.Settings(silent=True)
    for entry, numbers in found:
        about = {"project": PROJECT, "name": entry.folder.name, "config": _settings(entry)}
        with wandb.init(dir=folder, mode="offline", settings=quiet, **about) as run:
            for number, end, values in _epochs(entry):
                run.log(values | {"_timestamp": end, "epoch": number}, step=number)
            run.summary.update(numbers)


def _mlflow(found: Runs, folder: Path) -> None:
    """An MLflow database; ``mlflow ui --backend-store-uri sqlite:///...`` shows it."""
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder.absolute() / 'mlflow.db'}")
    mlflow.set_experiment(PROJECT)
    for entry, numbers in found:
        with mlflow.start_run(run_name=entry.folder.name):
            mlflow.log_params({k: str(v)[:500] for k, v in _settings(entry).items()})
            for number, end, values in _epochs(entry):
                mlflow.log_metrics(values, step=number, timestamp=round(1000 * end))
            mlflow.log_metrics({f"run_{name}": value for name, value in numbers.items()})


def _tensorboard(found: Runs, folder: Path) -> None:
    """A folder of event files for each run; ``tensorboard --logdir`` shows them."""
    from tensorboard.summary import Writer

    for entry, numbers in found:
        writer = Writer(str(folder / entry.folder.name))
        for number, end, values in _epochs(entry):
            for name, value in values.items():
                writer.add_scalar(name, value, number, wall_time=end)
        for name, value in numbers.items():
            writer.add_scalar(f"run/{name}", value, 0)
        writer.close()


def _mllog(found: Runs, folder: Path) -> None:
    """A file of MLPerf log lines for each run, as in its open division.

    MLPerf's checker accepts those of ResNet-50 (ruleset 4.0.0), and knows none of the other
    networks.
    """
    from mlperf_logging import mllog

    keys, logger = mllog.constants, mllog.get_mllogger()
    for entry, _ in found:
        logger.logger.handlers.clear()  # of the run before
        mllog.config(filename=str(folder / f"{entry.folder.name}.log"), root_dir=str(paths.ROOT))
        recipe, images = entry.content["recipe"], entry.content["data"]["images"]
        network, metric = recipe["network"], tasks.metric_of(recipe).of_epoch
        at = {"time_ms": round(1000 * _started(entry))}
        for key, value in {
            keys.SUBMISSION_BENCHMARK: keys.RESNET if network == "resnet50" else network,
            keys.SUBMISSION_DIVISION: keys.OPEN,
            keys.SUBMISSION_ORG: PROJECT,
            keys.SUBMISSION_PLATFORM: machines.models(entry.content["devices"]),
            keys.SUBMISSION_STATUS: keys.RESEARCH,
            keys.CACHE_CLEAR: True,
            keys.GLOBAL_BATCH_SIZE: recipe["global_batch_size"],
            keys.SEED: recipe["seed"],
            keys.TRAIN_SAMPLES: images["train"],
            keys.EVAL_SAMPLES: images["valid"],
            keys.OPT_NAME: recipe["optimizer"],
            keys.OPT_BASE_LR: recipe["scaled_learning_rate"],
            keys.GRADIENT_ACCUMULATION_STEPS: 1,
        }.items():
            logger.event(key, value, **at)
        logger.start(keys.INIT_START, **at)
        logger.end(keys.INIT_STOP, **at)
        logger.start(keys.RUN_START, **at)
        for number, end, values in _epochs(entry):
            about = {"metadata": {keys.EPOCH_NUM: number}}
            logger.start(keys.EPOCH_START, **at, **about)
            at = {"time_ms": round(1000 * (end - values["valid_seconds"]))}
            logger.end(keys.EPOCH_STOP, **at, **about)
            logger.start(keys.EVAL_START, **at, **about)
            at = {"time_ms": round(1000 * end)}
            logger.event(keys.EVAL_ACCURACY, values[metric], **at, **about)
            logger.end(keys.EVAL_STOP, **at, **about)
        logger.end(keys.RUN_STOP, **at, metadata={"status": keys.SUCCESS})


TARGETS: dict[str, tuple[str, Callable[[Runs, Path], None]]] = {
    "wandb": ("wandb", _wandb),
    "mlflow": ("mlflow", _mlflow),
    "tensorboard": ("tensorboard", _tensorboard),
    "mllog": ("mlperf-logging", _mllog),
}
"""For each target, the package of its client and the function that writes it."""
