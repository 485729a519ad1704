"""One run of a notebook: the steps that are the same in every framework.

A notebook begins a run and defines the functions of its framework
(``helpers.training.world.TrainingFunctions``). The run calls them for the fairness check, the
epochs, the test, the measurements of section 11, the charts and the record. Methods of this class
show all results.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from threading import current_thread, main_thread
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pandas as pd
from IPython.display import display
from safetensors import SafetensorError

import gpumon
from helpers import record
from helpers.errors import Interrupted, UserError
from helpers.errors import LoaderError as LoaderError  # notebooks raise it
from helpers.fairness import (
    check_results,
    network_checks,
    process_checks,
    reference_checks,
    training_checks,
    training_loop,
)
from helpers.fairness.check_results import DIFFERENT, FairnessCheck
from helpers.frameworks import rank_info, replicas
from helpers.frameworks.precisions import DTYPES
from helpers.launch import exchange, samplers
from helpers.networks import custom, weights
from helpers.networks.weights import Arrays, Weights
from helpers.record import run_identity, tasks
from helpers.training import (
    arithmetic,
    attribution,
    checkpoint,
    data_coverage,
    heartbeat,
    loader_advice,
    measurement_rounds,
    metrics,
    out_of_memory,
    parameters,
    ranks_gradients,
    run_plots,
    run_tables,
    train_loop,
)
from helpers.training.epoch_lines import EpochLines
from helpers.training.opening import PARAMETERS, open_run
from helpers.training.run_base import RunBase
from helpers.training.sections import Progress, section
from helpers.training.train_loop import WEIGHTS, Trained
from helpers.training.world import IN_KERNEL, TrainingFunctions

AGAIN = "run the cells from section 9 on again, or from section 2 with another name for run"
MAY_BE_LEFT_OUT = (
    *("seed", "execution", "warmup_epochs"),
    *("cores_per_device", "loader_cores"),
)
"""Parameters that the notebooks do not set. A user who needs one adds a line."""


def begin(framework: ModuleType, names: Mapping[str, Any]) -> Any:
    """Start the run that a notebook's parameters cell asks for; its record begins here.

    It has the name of the notebook's file. Of several ranks each has such a run, and the first's
    record is that of all.

    Args:
        framework: the framework's module of ``helpers.frameworks``.
        names: the notebook's ``globals()``, of which the parameters are taken.

    Raises:
        UserError: what was asked for cannot be had, the cell does not set all parameters, or the
            notebook's file cannot be found or has another name.
        UnsupportedError: this framework cannot compute in that precision, or on these devices, or
            the recipe has no network for it.
    """
    if isinstance(before := names.get("this_run"), Run):
        before.end()  # also where this one cannot begin: what follows would be of old parameters
    needed = [name for name in (*PARAMETERS, "resume") if name not in MAY_BE_LEFT_OUT]
    file, setup, devices, given = open_run(framework, names, needed)
    print(setup.devices if setup.nodes == 1 else f"{setup.short}. Each: {setup.devices}")
    run = Run(file, framework, setup, devices, given["resume"])
    run._names, run._given = names, given
    return run


class Run(RunBase):
    """A run while it is measured. Make one with :func:`begin`.

    ``functions`` are the notebook's, ``fairness_check`` is what has been found so far, ``rank``
    this process's number among those that run the notebook.
    """

    _names: Mapping[str, Any] = MappingProxyType({})
    """The notebook's ``globals()``."""
    _given: Mapping[str, Any] = MappingProxyType({})
    """Its parameters, as they were when the run began."""

    def __init__(
        self,
        notebook: Path,
        framework: ModuleType,
        setup: parameters.Setup,
        devices: tuple[Any, ...],
        resume: bool,
    ) -> None:
        super().__init__(framework, setup, devices)
        self.history: list[dict[str, Any]] = []
        self._resume = resume
        self.fairness_check = self._of_network = FairnessCheck(())
        self._observed: list[training_checks.Observed] = []
        self._begin: checkpoint.Checkpoint
        # Drawn live, except in an experiment, which runs unattended and is measured.
        self.monitor = samplers.of_process(setup.folder, live=not heartbeat.watched())
        self._trace: float | None = None  # when its sampling began
        self.progress = Progress()
        self._measured: dict[str, dict[str, Any]] = {}
        self._utilisation: pd.DataFrame | None = None
        here = rank_info.here()
        self.rank = 0 if here is None else here.rank
        self.record = record.start(
            setup.folder,
            notebook=notebook.stem,
            framework=framework.NAME,
            kernel=framework.KERNEL,
            versions=self.versions,
            devices=setup.of_all_nodes,
            recipe=setup.recipe,
            skipped=framework.SKIPPED,
            file=notebook,
        )
        if here is not None and here.about:
            self.record.add("cluster", dict(here.about))

    def check_parameters(self) -> None:
        """See that the parameters are still those that the run began with.

        Raises:
            UserError: one was changed since.
        """
        for name, was in self._given.items():
            if repr(now := self._names.get(name, was)) != repr(was):
                raise UserError(
                    f"{name} is now {now!r} and was {was!r} when section 3 ran: run section 3 again"
                )

    @cached_property
    def initial(self) -> Weights:  # type: ignore[override]
        """The initial weights, the same in every framework; a custom network draws its own."""
        recipe, outputs = self.recipe.recipe, len(self.images.classes)
        if self.network == "own":
            found = exchange.of_first(custom.initial(self.framework, recipe, outputs))
        else:
            with exchange.first_rank_first():  # it may download them
                found = weights.canonical(
                    recipe.weights, network=self.network, outputs=outputs, seed=recipe.seed
                )
        self.record.add("weights", found.as_record())
        return found

    def end(self) -> None:
        """End this run because another one takes its place in the kernel."""
        self.progress.replaced = True
        samplers.stop(self.monitor)
        if self._replica is not None:
            with suppress(Exception):  # an interrupt may have left it in pieces
                self.functions.stop(self._replica)
            self._replica = None
        self.record.close()

    def show_images(self, evaluate_pixels: Callable[[np.ndarray], np.ndarray]) -> Any:
        """Eight training images as ``evaluate_pixels`` shows them to the network."""
        return run_plots.images(self.images, evaluate_pixels)

    @section(7, "the fairness check", records=("fairness",))
    def check_fairness(
        self,
        model: Any,
        build_model: Callable[[Mapping[str, np.ndarray]], Any],
        evaluate_pixels: Callable[[np.ndarray], np.ndarray],
        processes: str = IN_KERNEL,
    ) -> pd.DataFrame:
        """The fairness check of what stands in the notebook so far, as a table.

        Args:
            model: the network that will train, with the initial weights.
            evaluate_pixels: from an image, uint8 (H, W, planes), to what the network sees of it in
                an evaluation, float32 (3, crop, crop).
            processes: ``IN_CHILD`` to compute it in a process that takes the devices' memory with
                it when it ends.
        """
        samplers.stop(self.monitor)  # of a training before this
        on_ranks = rank_info.here() is not None
        check = partial(
            network_checks.check_fairness,
            self.framework,
            model,
            self.initial,
            self.recipe,
            build_model=build_model,
            devices=self.devices[:1] if on_ranks else self.devices,
            evaluate_pixels=evaluate_pixels,
            labels=self.images.labels,
            classes=self.images.classes,
        )
        here = on_ranks or processes == IN_KERNEL
        found = check() if here else replicas.run(lambda rank: check(), 1)[0]
        if on_ranks and self.setup.replicas > 1:
            found = found.updated(reference_checks.with_one_device(ranks_gradients.LATER))
        self.fairness_check = self._of_network = found
        return self._checked()

    @section(9, "the training-loop check", needs=("check_fairness",), records=("fairness",))
    def check_training_loop(self, **functions: Any) -> pd.DataFrame:
        """Take the notebook's functions, and add to the check what its training loop does.

        Args:
            functions: the fields of ``helpers.training.world.TrainingFunctions``.
        """
        samplers.stop(self.monitor)  # of a training before this
        self.take(TrainingFunctions(**functions))

        def trial(trial: training_loop.Trial) -> tuple[float, Arrays, np.ndarray]:
            found: tuple[float, Arrays, np.ndarray]
            found = self.everywhere(train_loop.check_training_loop, trial)[0]
            return found

        began = time.perf_counter()
        checks = training_loop.check_fairness(
            trial,
            devices=self.setup.replicas,
            precision=self.recipe.recipe.precision,
            rule=self.recipe.recipe.rule,
            task=self.recipe.recipe.task,
        )
        checks += data_coverage.check_fairness(
            self.everywhere,
            self.images,
            self.recipe,
            processes=self.processes,
            hosts=1 if self.setup.simulated_nodes else self.setup.nodes,
        )
        if rank_info.here() is not None and self.setup.replicas > 1:
            given = self.initial if self.network == "own" else None
            answers = self.everywhere(ranks_gradients.answer, self.network, given)
            checks += process_checks.of_ranks(answers, self.setup.replicas)
        self.fairness_check = self._of_network.updated(checks, time.perf_counter() - began)
        return self._checked()

    def take(self, functions: TrainingFunctions) -> None:
        """From now on all is done by these functions of the notebook."""
        self._end_replica()
        self.functions = functions

    @section(
        9, "training", needs=("check_training_loop",), records=("epochs", "training", "checkpoint")
    )
    def train(self) -> pd.DataFrame:
        """All epochs, under the monitor: a line for each as it ends, curves, and a table."""
        self.lines = EpochLines(self.recipe, len(self.images.train), self.images.task)
        with self._ends_in_order():
            return self._train()

    def _train(self) -> pd.DataFrame:
        self.record.add(
            "data", self.images.as_record(self.recipe) | {"loader_workers": self.workers}
        )
        with exchange.first_rank_first():  # it sets a damaged one aside
            begin = checkpoint.begin(self.record, self.initial.arrays, resume=self._resume)
            if self.rank == 0:
                samplers.clear(self.folder)
        self._begin = replace(begin, run=exchange.of_first(begin.run))
        samplers.stop(self.monitor)  # of an earlier training
        try:
            samplers.start(self.monitor)
        except gpumon.MonitorError as error:
            raise UserError(f"{error}; another run may train in this folder: {AGAIN}") from None
        exchange.exchange(None)  # every host samples: no rank marks a phase that is not kept
        self._trace = samplers.began(self.folder)
        self.lines.begin(self._begin.epoch)
        self._end_replica()  # training starts its own
        report = self.lines.heard if self._in_process else replicas.tell
        given = (self._begin, report)
        with out_of_memory.explained(self.recipe.recipe):
            each: list[Trained] = self.with_replica(
                train_loop.train, self._begin.weights, self.lines.first_step, *given
            )
        trained = each[0]
        self._check_training(each)
        self.history = trained.history
        said = record.training(self.history, trained.first_step, self._begin.epoch)
        seen = self._observed[0].seen
        said |= {"execution": seen.execution, "convolutions": seen.convolutions}
        said |= {"threads": seen.threads, "switches": list(self._observed[0].switches)}
        self.record.add("epochs", self.history)
        if times := trained.steps:
            extremes = {"minimum": min(times), "maximum": max(times)}
            said["step_seconds"] = {"median": median(times), **extremes}
        self.record.add("training", said)
        self.record.add("checkpoint", self._begin.as_record(trained.stalled))
        display(run_plots.learning(self.history, tasks.TASKS[self.images.task]))
        return run_tables.shown(pd.DataFrame(self.history).set_index("epoch"), 4)

    @section(10, "test", needs=("train",), records=("test",))
    def test(self) -> pd.DataFrame:
        """Evaluate the saved weights on the test part, for each finding or class.

        With intervals, as a chart and a table.
        """
        weights_of_this_run = self._trained_weights()
        each: list[train_loop.Tested] = self.with_replica(train_loop.test, weights_of_this_run, 0)
        scores, loss, seconds, _ = each[0]
        self._check_test_part(each)
        images, part = self.images, self.images.test
        targets = images.targets(part)
        sample = run_identity.images(part, images.classes)
        result = metrics.MODULES[images.task].evaluate(
            targets, scores, part["group"], images.classes, sample
        )
        self.record.add("test", record.test(result, loss, seconds))
        print(result)
        display(run_plots.TEST[images.task](targets, scores, result))
        return run_tables.shown(result.table.fillna({"reason": ""}), 3)

    @section(
        11, "measurements", needs=("train",), records=(*measurement_rounds.KINDS, "arithmetic")
    )
    def profile(self, **functions: Any) -> pd.DataFrame:
        """Section 11's measurements, in rounds, as a table; the monitor ends with them.

        Args:
            functions: those of ``TrainingFunctions`` that only these measurements need.
        """
        self.functions = replace(self.functions, **functions)
        steps = measurement_rounds.steps_of_a_turn(self.history)
        found: list[measurement_rounds.Seconds] = self.with_replica(
            train_loop.measure, self.initial.arrays, 0, steps
        )
        samplers.stop(self.monitor)
        images = self.recipe.global_batch_size
        seconds = measurement_rounds.slowest(found)
        seconds = measurement_rounds.without_the_impossible(seconds)
        self._measured = measurement_rounds.as_record(seconds, steps=steps, images=images)
        exchange.exchange(None)  # all have stopped sampling
        for kind, measured in self._measured.items():
            self.record.add(kind, measured)
        computed = self._arithmetic(seconds[measurement_rounds.PRODUCT])
        self.record.add("arithmetic", computed)
        print(arithmetic.in_words(computed))
        if self.setup.replicas == 1:
            print("One device has no all-reduce to leave out, so there are three measurements.")
        elif "no_allreduce" not in self._measured:
            print(f"Without all-reduce is left out: {measurement_rounds.IMPOSSIBLE}.")
        return measurement_rounds.table(self._measured)

    def _arithmetic(self, seconds: Sequence[float]) -> dict[str, Any]:
        """The record's section ``arithmetic``, from the seconds of a product in each round."""
        kind, recipe = self.setup.devices.kind, self.recipe.recipe
        flops = arithmetic.flops_of_product(kind, self.setup.replicas)
        return record.arithmetic(
            [flops / round for round in seconds],
            size=arithmetic.SIZES[kind],
            dtype=DTYPES[recipe.precision],
            flops_per_image=arithmetic.flops_of_training(
                self.network, len(self.images.classes), recipe.crop
            ),
            measured=self._measured,
        )

    @section(12, "utilisation", needs=("profile",), records=("monitor", "energy", "memory"))
    def chart(self) -> pd.DataFrame:
        """The monitor's chart of the whole run, a lane for each GPU, and what it saw as a table."""
        if self.rank:
            return pd.DataFrame()  # rank 0's is of all
        if samplers.began(self.folder) != self._trace:
            raise UserError(f"{self.folder}: another run has replaced the trace; {AGAIN}")
        trace = samplers.read(self.folder)
        self._utilisation = trace.summary().to_pandas()
        self.record.add("monitor", trace.metadata())
        self.record.add("energy", record.energy(self._utilisation))
        self.record.add("memory", record.memory(self._utilisation, self._held))
        display(trace.plot())
        return run_tables.shown(self._utilisation, 2)

    @section(13, "where the time went", needs=("chart",), records=("attribution",))
    def attribute_time(self) -> pd.DataFrame:
        """Where the time went, in a sentence and by three ways, as a table."""
        if self.rank:
            return pd.DataFrame()  # rank 0's is of all
        shares = attribution.attribute(
            self.history,
            self._measured,
            devices=self.setup.short,
            utilisation=self._utilisation,
            way_out=loader_advice.first_change(self.record.content),
            resumed_after=self._begin.epoch,
            cluster=self.record.content.get("cluster"),
            replicas=self.setup.replicas,
        )
        self.record.add("attribution", shares)
        print(shares["sentence"])
        print(attribution.agreement(shares))
        table = attribution.table(shares)
        if (table == run_tables.MISSING).any(axis=None):
            print(f"In the table, {run_tables.MISSING} is a share that this method cannot measure.")
        return table

    @section(14, "the record", needs=("test", "attribute_time"))
    def finish(self) -> None:
        """The run is whole: print where its record is."""
        self._end_replica()
        print(self.record.finish())
        if self.rank == 0:  # last: only a run that is whole needs none any more
            checkpoint.remove(self.folder)

    def _check_training(self, each: list[Trained]) -> None:
        """Whether it trained as the recipe says, and all replicas came to the same weights."""
        checks = process_checks.after_training(
            [trained.digest for trained in each],
            [trained.logits for trained in each],
            self.setup.replicas,
            training_loop.LIMITS[self.recipe.recipe.precision].values,
        )
        self._observed = [trained.observed for trained in each if trained.observed is not None]
        checks += training_checks.check_fairness(
            self._observed,
            self.recipe,
            self.images.targets(self.images.train),
            on_gpu=self.on_gpu,
            cpus=self.setup.of_all_nodes.cpus,
        )
        self.fairness_check = self.fairness_check.updated(checks)  # of an earlier training, too
        self._checked()
        apart = [check for check in checks if check.verdict in ("fail", DIFFERENT)]
        for check in apart:
            print(f"{check.check}: {check.verdict}, {check.variant or check.reason}")
        counts = check_results.counted(check.verdict for check in checks)
        print(f"Checks of this training: {counts}")

    def _check_test_part(self, each: list[train_loop.Tested]) -> None:
        """Whether the test read its images, goes into the fairness check with the validations."""
        observed = [
            replace(one, evaluations=[*one.evaluations, tested.evaluation])
            for one, tested in zip(self._observed, each, strict=True)
        ]
        self.fairness_check = self.fairness_check.updated([training_checks.evaluations(observed)])
        self._checked()

    @property
    def _held(self) -> int | None:
        """The most bytes that a device held in training; None where the driver tells of a GPU."""
        if self.on_gpu or not self._observed:
            pooled = (each.pooled for each in self._observed if each.pooled is not None)
            return max(pooled, default=None)
        held = max(each.resident for each in self._observed)
        return held * len(self._observed) // self.setup.replicas

    def _checked(self) -> pd.DataFrame:
        self.record.add("fairness", self.fairness_check.as_record())
        return self.fairness_check.table()

    def _trained_weights(self) -> Arrays:
        """Those that this run's training has left."""
        path = self.folder / WEIGHTS
        with suppress(OSError, SafetensorError):
            if weights.metadata(path).get(train_loop.RUN) == self._begin.run:
                return weights.load(path)
        raise UserError(f"{path}: another run has replaced this run's weights; {AGAIN}")

    @contextmanager
    def _ends_in_order(self) -> Iterator[None]:
        """Around training: an interrupt waits for the checkpoint of the epoch that was printed.

        However training ends before its time, the monitor ends with it.
        """

        def interrupted(*_: object) -> None:
            signal.signal(signal.SIGINT, before)  # a second one is not kept waiting
            printed, epochs = self.lines.printed, self.lines.epochs
            checkpoint.await_epoch(self.folder, printed)
            raise Interrupted(
                f"training was interrupted after {printed} of {epochs} "
                "epochs; run section 9 to begin it again, or set resume = True and run all cells "
                "to continue from the checkpoint"
            )

        before = signal.getsignal(signal.SIGINT)
        own = current_thread() is main_thread()  # no other thread is interrupted
        try:
            if own:
                signal.signal(signal.SIGINT, interrupted)
            yield
        except BaseException:
            samplers.stop(self.monitor)
            raise
        finally:
            if own:
                signal.signal(signal.SIGINT, before)
