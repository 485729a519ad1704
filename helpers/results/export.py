"""Export an experiment's runs to where people keep results, by each target's own client.

The clients are not part of any environment here: install the one you use into ``lab``. All of them
write to a folder and use no network.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from helpers import paths
from helpers.errors import UserError, naming
from helpers.record import tasks
from helpers.results import comparison, machines
from helpers.results.comparison import Entry

PROJECT = "rosetta"
EPOCH = ("learning_rate", "train_loss", "valid_loss", "images_per_second")
"""Fields of an epoch that are exported beside the validation metrics."""


@dataclass(frozen=True)
class Exported:
    """A finished run as every target gets it.

    Times are in seconds since 1970. ``epochs`` have their beginning, that of validation, their end,
    and their figures by name.
    """

    name: str
    settings: dict[str, Any]
    started: float
    trains: float
    ended: float
    epochs: list[tuple[float, float, float, dict[str, float]]]
    figures: dict[str, float]
    """The whole run's, by name."""
    metric: str
    """The name among each epoch's figures of that by which quality is judged."""
    content: dict[str, Any]


def write(experiment: str | Path, target: str, out: Path | None = None) -> tuple[Path, int]:
    """Write the finished runs of an experiment for a target; where they are, and how many.

    Args:
        experiment: its name under ``runs/``, or its folder.
        target: one of :data:`TARGETS`.
        out: a folder that is not there or empty; None: one in the experiment's folder.

    Raises:
        UserError: there is no such experiment or no finished run, the client is not installed, or
            the folder holds something.
    """
    compared = comparison.load(experiment)
    folder = out or comparison.folder_of(experiment) / f"export-{target}"
    if not compared.finished:
        raise UserError(f"{experiment}: no run has finished, so there is nothing to export")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} exists and is not empty: give another folder with --out")
    runs = [_exported(entry) for entry in compared.finished]
    package, writer = TARGETS[target]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with naming(folder), tempfile.TemporaryDirectory(dir=folder.parent) as home:
        part = Path(home) / folder.name
        part.mkdir()
        try:
            writer(runs, part)
        except ModuleNotFoundError as error:
            raise UserError(
                f"export to {target} needs the package {package}: "
                f".venvs/lab/bin/python -m pip install {package}"
            ) from error
        part.replace(folder)  # all of it, or nothing
    return folder, len(runs)


def _exported(entry: Entry) -> Exported:
    content = entry.content
    run, training, test = content["run"], content["training"], content["test"]
    metric = tasks.metric_of(content["recipe"])
    started = datetime.fromisoformat(run["started"]).timestamp()
    begins = clock = content.get("monitor", {}).get("start (unix s)") or started
    epochs = []
    for epoch in content["epochs"]:
        figures = {name: epoch[name] for name in EPOCH if epoch.get(name) is not None}
        validated = {name: value for name, value in epoch.items() if name.startswith("valid_")}
        figures |= {name: value for name, value in validated.items() if name != "valid_seconds"}
        trained = clock + epoch["train_seconds"]
        ended = trained + epoch["valid_seconds"]
        epochs.append((clock, trained, ended, {k: float(v) for k, v in figures.items()}))
        clock = ended
    figures = {
        "images_per_second": training["images_per_second"],
        "training_seconds": training["seconds"],
        f"test_{metric.name}": test[metric.tested[0]],
        "joules": content.get("energy", {}).get("joules"),
        "peak_bytes": content.get("memory", {}).get("peak_bytes"),
    }
    recipe = {key: value for key, value in content["recipe"].items() if key != "text"}
    settings = {
        "framework": entry.label,
        "devices": entry.devices,
        "device names": machines.models(content["devices"]),
        "machine": run["host"],
        "commit": run["commit"],
        "fairness check": "passed" if content["fairness"]["comparable"] else "not passed",
        "execution": training.get("execution", "not recorded"),
        **{f"recipe.{key}": value for key, value in recipe.items()},
        **{f"version.{key}": value for key, value in content["framework"]["versions"].items()},
    }
    return Exported(
        entry.folder.name,
        settings,
        started,
        begins,
        datetime.fromisoformat(run["finished"]).timestamp(),
        epochs,
        {name: float(value) for name, value in figures.items() if value is not None},
        metric.of_epoch,
        content,
    )


def _wandb(runs: Sequence[Exported], folder: Path) -> None:
    """Offline runs of Weights & Biases; ``wandb sync`` uploads them."""
    import wandb

    for run in runs:
        kept = wandb.init(
            project=PROJECT,
            name=run.name,
            config=run.settings,
            dir=folder,
            mode="offline",
            settings=wandb.Settings(silent=True),
        )
        for number, (*_, ended, figures) in enumerate(run.epochs, 1):
            kept.log(figures | {"_timestamp": ended, "epoch": number}, step=number)
        kept.summary.update(run.figures)
        kept.finish()


def _mlflow(runs: Sequence[Exported], folder: Path) -> None:
    """A database of MLflow's; ``mlflow ui --backend-store-uri sqlite:///...`` shows it."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client = MlflowClient(f"sqlite:///{folder.absolute() / 'mlflow.db'}")
    place = client.create_experiment(PROJECT)
    for run in runs:
        kept = client.create_run(place, start_time=_ms(run.started), run_name=run.name)
        metrics = [
            Metric(name, value, _ms(ended), number)
            for number, (*_, ended, figures) in enumerate(run.epochs, 1)
            for name, value in figures.items()
        ]
        metrics += [
            Metric(f"run_{k}", value, _ms(run.ended), 0) for k, value in run.figures.items()
        ]
        settings = [Param(_plain(k), str(value)[:500]) for k, value in run.settings.items()]
        client.log_batch(kept.info.run_id, metrics, settings)
        client.set_terminated(kept.info.run_id, end_time=_ms(run.ended))


def _plain(name: str) -> str:
    """The name without what MLflow takes in none."""
    return "".join(letter if letter.isalnum() or letter in "_-. /" else "_" for letter in name)


def _tensorboard(runs: Sequence[Exported], folder: Path) -> None:
    """A folder of event files for each run; ``tensorboard --logdir`` shows them."""
    from tensorboard.summary import Writer

    for run in runs:
        writer = Writer(str(folder / run.name))
        for number, (*_, ended, figures) in enumerate(run.epochs, 1):
            for name, value in figures.items():
                writer.add_scalar(name, value, number, wall_time=ended)
        for name, value in run.figures.items():
            writer.add_scalar(f"run/{name}", value, 0, wall_time=run.ended)
        writer.close()


def _mllog(runs: Sequence[Exported], folder: Path) -> None:
    """A file of MLPerf's log lines for each run, as its open division has them.

    MLPerf's checker accepts those of ResNet-50 (ruleset 4.0.0), and knows no other network here.
    """
    from mlperf_logging import mllog

    for run in runs:
        with _logger(mllog, folder / f"{run.name}.log") as logger:
            _log_lines(logger, mllog.constants, run)


@contextmanager
def _logger(mllog: Any, path: Path) -> Iterator[Any]:
    logger = mllog.get_mllogger()
    logger.logger.handlers.clear()
    logger.logger.propagate = False
    mllog.config(filename=str(path), root_dir=str(paths.ROOT))
    try:
        yield logger
    finally:
        for handler in [*logger.logger.handlers]:
            handler.close()
            logger.logger.removeHandler(handler)


def _log_lines(logger: Any, keys: Any, run: Exported) -> None:
    recipe, images = run.content["recipe"], run.content["data"]["images"]
    benchmark = {"resnet50": keys.RESNET}.get(recipe["network"], recipe["network"])
    begin = _ms(run.started)
    for key, value in (
        (keys.SUBMISSION_BENCHMARK, benchmark),
        (keys.SUBMISSION_DIVISION, keys.OPEN),
        (keys.SUBMISSION_ORG, PROJECT),
        (keys.SUBMISSION_PLATFORM, f"{run.settings['machine']}, {run.settings['device names']}"),
        (keys.SUBMISSION_STATUS, keys.RESEARCH),
        (keys.CACHE_CLEAR, True),
        (keys.GLOBAL_BATCH_SIZE, recipe["global_batch_size"]),
        (keys.SEED, recipe["seed"]),
        (keys.TRAIN_SAMPLES, images["train"]),
        (keys.EVAL_SAMPLES, images["valid"]),
        (keys.OPT_NAME, recipe["optimizer"]),
        (keys.OPT_BASE_LR, recipe["scaled_learning_rate"]),
        (keys.GRADIENT_ACCUMULATION_STEPS, 1),
    ):
        logger.event(key, value, time_ms=begin)
    logger.start(keys.INIT_START, time_ms=begin)
    logger.end(keys.INIT_STOP, time_ms=_ms(run.trains))
    logger.start(keys.RUN_START, time_ms=_ms(run.trains))
    for number, (began, trained, ended, figures) in enumerate(run.epochs, 1):
        about = {keys.EPOCH_NUM: number}
        logger.start(keys.EPOCH_START, time_ms=_ms(began), metadata=about)
        logger.end(keys.EPOCH_STOP, time_ms=_ms(trained), metadata=about)
        logger.start(keys.EVAL_START, time_ms=_ms(trained), metadata=about)
        logger.event(keys.EVAL_ACCURACY, figures[run.metric], time_ms=_ms(ended), metadata=about)
        logger.end(keys.EVAL_STOP, time_ms=_ms(ended), metadata=about)
    done = {"status": keys.SUCCESS}
    logger.end(keys.RUN_STOP, time_ms=_ms(run.epochs[-1][2]), metadata=done)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


Writer = Callable[[Sequence[Exported], Path], None]
TARGETS: dict[str, tuple[str, Writer]] = {
    "wandb": ("wandb", _wandb),
    "mlflow": ("mlflow", _mlflow),
    "tensorboard": ("tensorboard", _tensorboard),
    "mllog": ("mlperf-logging", _mllog),
}
"""By the word that asks for it: the package of its client, and what writes it."""
