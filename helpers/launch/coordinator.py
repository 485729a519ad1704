"""The coordinator: starts a run's ranks, hands out calls, collects the answers, and ends all."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

from helpers import paths
from helpers.errors import number_in, refusal
from helpers.frameworks import place
from helpers.launch import causes, engines, letters, meeting, watch
from helpers.launch.causes import RankError
from helpers.launch.engines import Engine

LOG = "ranks.log"
"""In the run's folder: what the engine and the ranks print, tracebacks among it."""
HANG_VARIABLE = "COMPARE_HANG_MINUTES"
"""Environment variable: for how long a call may go on without a step; 0: for ever."""
HANG_MINUTES = 10.0
JOIN_SECONDS = 120.0
"""In which all ranks have to be in."""
POLITE_SECONDS, KILL_SECONDS = 5.0, 2.0
"""What ranks get to end by themselves, and their watchers and the engine to end them."""
TROUBLED = 3
"""Signs of life in a row that could not be written: the disk is full, or gone."""
SETTLE_SECONDS = 0.4
"""What the watchers get to write down a death that others noticed first."""


@dataclass(frozen=True)
class Order:
    """What a run's ranks are to be."""

    cells: list[tuple[str, str]]
    """Name and text of the code that each runs before it answers calls."""
    nodes: int
    ranks_a_node: int
    devices: int = 1
    """Of each node."""
    kind: str = "cpu"
    gpus: int = 0
    """How many this machine has."""
    framework: str = ""
    """Its module in ``helpers.frameworks``."""
    luggage: dict[str, Any] = field(default_factory=dict)
    """What the cells find in the folder, by name (:func:`letters.received`)."""


class Ranks:
    """The ranks of a run, from their start to their end."""

    def __init__(
        self,
        run: Path,
        order: Order,
        engine: Engine,
        *,
        hang_minutes: float | None = None,
        join_seconds: float = JOIN_SECONDS,
    ) -> None:
        """Start them; returns once all are in.

        Raises:
            RankError: one failed before, or did not come.
            UserError: no network joins their hosts, or their hosts are not those asked for.
        """
        self.order, self.engine = order, engine
        self.folder = letters.make_folder(run)
        self.count = order.nodes * order.ranks_a_node
        self.hosts = [""] * self.count
        self.virtual = engine.virtual
        """Whether all nodes have turned out to be one machine."""
        self.machines: list[dict[str, Any]] = []
        """Each host: its name, CPUs, GPUs and ranks."""
        self.interfaces: list[str] = []
        if hang_minutes is None:
            hang_minutes = number_in(HANG_VARIABLE, HANG_MINUTES, "minutes; 0: for ever")
        self._hang = 60 * hang_minutes
        self._calls = self._told = 0
        self._ended = Event()
        self._process: subprocess.Popen[bytes] | None = None  # the engine
        self._trouble: OSError | None = None  # why no sign of life was given
        try:
            self._start(run)
            self._meet(join_seconds)
        except BaseException:
            self.end()
            raise

    def call(
        self,
        function: Callable[..., Any],
        *args: Any,
        heard: Callable[[Any], None] = lambda message: None,
    ) -> list[Any]:
        """What every rank answers to ``function`` and ``args``, in their order.

        When one fails, hangs or dies, or the caller is interrupted, all are ended.

        Args:
            function: importable, or what cloudpickle ships.
            args: what it is given, of which the answering side may take some for itself.
            heard: called with all that rank 0 tells meanwhile (``serving.tell``).

        Raises:
            RankError: the earliest cause, in one line.
        """
        try:
            letters.send(self.folder / f"call-{self._calls}", (function, args))
            self._calls += 1
            return self._answers(heard)
        except BaseException:
            self.end()
            raise

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def end(self) -> None:
        """End the ranks, their engine and all that they started; harmless when they are ended."""
        if self._ended.is_set():
            return
        with suppress(OSError):
            for wish, seconds in ((watch.END, POLITE_SECONDS), (watch.KILL, KILL_SECONDS)):
                failed = causes.earliest(self.folder) is not None or sys.exc_info()[0] is not None
                if failed and wish == watch.END:
                    continue
                (self.folder / wish).touch(mode=0o600)
                if self._waited(seconds):
                    break
        self._ended.set()
        atexit.unregister(self.end)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process is not None and not self._waited(0):
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                self._waited(1)
        letters.remove(self.folder)

    def _waited(self, seconds: float) -> bool:
        """Whether the engine has ended, within so many seconds."""
        with suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(seconds)
            return True
        return False

    def _start(self, run: Path) -> None:
        order, folder = self.order, self.folder
        rank_in = engines.RANK_IN[self.engine.name]
        about = {"cells": order.cells, "framework": order.framework, "gpus here": order.gpus}
        about["path"] = sys.path  # what can be imported here can be there
        letters.send(folder / "order", about | {"rank in": rank_in})
        for name, value in order.luggage.items():
            letters.send(folder / name, value)
        letters.say(folder / watch.ALIVE, {"beat": 0})
        program = [sys.executable, "-m", "helpers.launch.rank", str(folder)]
        environment = os.environ | {place.VARIABLE: str(folder), "PYTHONPATH": str(paths.ROOT)}
        if self.engine.virtual:  # what leads it to other hosts
            environment = {k: v for k, v in environment.items() if not k.startswith("HYDRA_")}
        elif "-" in environment.get("CUDA_VISIBLE_DEVICES", ""):
            del environment["CUDA_VISIBLE_DEVICES"]  # names of this machine's GPUs, by the runner
        if self.engine.name == "mpiexec":  # hands this node's name on to ranks on others
            environment.pop(place.SLURM_NODE, None)
        self._log = run / LOG
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.engine.command(program, order.ranks_a_node),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is the coordinator's alone
            )
        Thread(target=self._live, daemon=True).start()
        atexit.register(self.end)

    def _live(self) -> None:
        """Let the watchers see every second that somebody still waits for their ranks."""
        number = failed = 0
        while not self._ended.wait(watch.BEAT_SECONDS):
            number += 1
            try:
                letters.say(self.folder / watch.ALIVE, {"beat": number})
                failed = 0
            except OSError as error:
                failed += 1
                if failed == TROUBLED:
                    self._trouble = error

    def _meet(self, seconds: float) -> None:
        """Wait for all ranks, and tell each where all are."""
        joined: dict[int, dict[str, Any]] = {}
        until = time.monotonic() + seconds
        while len(joined) < self.count:
            for rank in set(range(self.count)) - set(joined):
                if (said := letters.heard(self.folder / f"joined-{rank}")) is not None:
                    joined[rank] = said
            self._check_causes()
            if time.monotonic() > until:
                missing = [str(rank) for rank in range(self.count) if rank not in joined]
                raise RankError(
                    f"{len(joined)} of {self.count} ranks are in after {seconds:.0f} s; missing: "
                    f"rank {', '.join(missing)} (see {self._log})"
                )
            time.sleep(0.03)
        everybody = [joined[rank] for rank in range(self.count)]
        meeting.check_hosts(self.engine, everybody, self.order.nodes)
        met = meeting.place_of_all(self.engine, everybody, self.order.nodes)
        self.hosts, self.interfaces = list(met["hosts"]), list(met["interfaces"])
        self.virtual, self.machines = met["virtual"], meeting.machines(everybody)
        about = {"devices": self.order.devices, "kind": self.order.kind}
        letters.send(self.folder / "met", met | about)

    def _answers(self, heard: Callable[[Any], None]) -> list[Any]:
        number, answers = self._calls - 1, dict[int, Any]()
        quiet = began = time.monotonic()
        states: dict[int, Any] = {}
        pulses: dict[int, tuple[Any, float]] = {}
        looked = 0.0
        while len(answers) < self.count:
            self._pass_on(heard)
            before = len(answers)
            for rank in set(range(self.count)) - set(answers):
                with suppress(FileNotFoundError):
                    answers[rank] = letters.received(self.folder / f"answer-{number}-{rank}")
            self._check_causes()
            now = time.monotonic()
            if now - looked > watch.BEAT_SECONDS:
                looked, was = now, states
                states = self._letters("state")
                if states != was:
                    quiet = now
                self._check_pulses(pulses, began, now)
            if len(answers) > before:
                quiet = now
            if self._hang and now - quiet > self._hang:
                who = causes.waiting(list(answers), states, self.hosts)
                raise RankError(f"no answer for {_for(self._hang)}: {who}")
            time.sleep(0.03)
        self._pass_on(heard)
        return [answers[rank] for rank in range(self.count)]

    def _pass_on(self, heard: Callable[[Any], None]) -> None:
        with suppress(FileNotFoundError):
            while True:
                message = letters.received(self.folder / f"told-{self._told}")
                self._told += 1
                heard(message)

    def _letters(self, kind: str) -> dict[int, Any]:
        found = {rank: letters.heard(self.folder / f"{kind}-{rank}") for rank in range(self.count)}
        return {rank: said for rank, said in found.items() if said is not None}

    def _check_causes(self) -> None:
        """Raise what ended a rank, or the engine."""
        assert self._process is not None
        status = self._process.poll()
        if causes.earliest(self.folder) is None and status is None and self._trouble is None:
            return
        time.sleep(SETTLE_SECONDS)
        cause = causes.earliest(self.folder)
        if cause is None and self._trouble is not None:
            cause = f"coordinator on {socket.gethostname()}: {refusal(self._trouble)}"
        raise RankError(
            cause or f"{self.engine.name} ended with exit code {status}: see {self._log}"
        )

    def _check_pulses(self, last: dict[int, tuple[Any, float]], since: float, now: float) -> None:
        """Raise where a rank's watcher is no longer heard: its whole host is gone."""
        for rank, said in self._letters("pulse").items():
            if rank not in last or last[rank][0] != said["pulse"]:
                last[rank] = (said["pulse"], now)
            elif now - max(last[rank][1], since) > watch.SILENT_SECONDS:
                raise RankError(
                    f"rank {rank} on {self.hosts[rank]}: no sign of life for "
                    f"{watch.SILENT_SECONDS:.0f} s; its host is gone, or was stopped"
                )


def _for(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
