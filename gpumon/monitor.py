"""A Monitor records GPUs and host in a separate process, and marks the program's phases."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from gpumon import launch
from gpumon.errors import MonitorError, required_for, warn
from gpumon.phases import Marker, Phase
from gpumon.trace_files import (
    VERSION,
    Lock,
    create,
    new_file,
    phases_file,
    prefix_of,
    samples_file,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpumon.live_chart import LiveView
    from gpumon.trace import Trace

SHORTEST, LONGEST = 0.005, 60.0
READY_SECONDS = 20.0
STOP_SECONDS = 5.0
LIVE_SECONDS = 2.0
LISTEN_SECONDS = 1.0


class Monitor:
    """Record the GPUs and the host in a separate process, and mark phases.

    Use it in a ``with`` statement, or call :meth:`start` and :meth:`stop`. If the sampler fails,
    there is one warning and the program continues. A pickled Monitor is a :class:`gpumon.Marker`,
    for worker processes on the same machine.

    Args:
        path: the prefix of the trace's files: ``runs/x/trace`` gives ``trace.jsonl`` and
            ``trace.phases.jsonl``. In an existing folder, the prefix is ``trace``. An older trace
            with the same prefix is replaced.
        interval: the time between samples in seconds, 0.005 to 60. NVML averages utilisation over
            1/6 s to 1 s, so a shorter interval than 0.1 s adds detail only to power and the host.
        gpu_ids: the GPUs to record, as NVML indices, UUIDs or the beginnings of UUIDs. None: the
            GPUs that ``CUDA_VISIBLE_DEVICES`` allows.
        rank: the rank of this process. None: the rank that torchrun, MPI or Slurm sets. Ranks above
            0 write to ``PATH-rankN``; ``gpumon.read("PATH*")`` reads all ranks together.
        live: True: in a notebook, redraw a chart under the cell every few seconds, in another
            process. Elsewhere, nothing is drawn.

    Raises:
        MonitorError: an argument is not valid.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] = "trace",
        interval: float = 0.1,
        gpu_ids: Sequence[str | int] | None = None,
        *,
        rank: int | None = None,
        live: bool = False,
    ) -> None:
        if not SHORTEST <= interval <= LONGEST:
            raise MonitorError(
                f"interval={interval!r}: seconds between samples must be {SHORTEST} to {LONGEST}"
            )
        self.rank = launch.rank_info().rank if rank is None else rank
        try:
            self.path = prefix_of(path).absolute()
        except FileNotFoundError:
            raise MonitorError(
                "the working folder is gone; give Monitor a path that begins with /"
            ) from None
        if self.rank:  # all ranks run this line: each must have its own trace
            self.path = self.path.with_name(f"{self.path.name}-rank{self.rank}")
        self.interval = float(interval)
        self.gpu_ids = [gpu_ids] if isinstance(gpu_ids, str) else gpu_ids and list(gpu_ids)
        self.live = live
        self.marker = Marker(phases_file(self.path))
        self.program_root = launch.program_root(self.rank)
        self.process_root: int | None = None
        """The process whose descendants are recorded; None: this one."""
        self._view: LiveView | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._lock: Lock | None = None
        self._said: IO[bytes] | None = None
        self._place = 0
        self._last = ""
        self._heard = 0.0

    def __enter__(self) -> Monitor:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __reduce__(self) -> tuple[Any, ...]:
        return self.marker.__reduce__()

    @property
    def running(self) -> bool:
        """True while the sampling process runs."""
        return self._process is not None and self._process.poll() is None

    def phase(self, name: str, /, **attributes: Any) -> Phase:
        """Return a context manager that marks a phase.

        Args:
            name: the phase's name, such as ``"train"``.
            **attributes: see :meth:`gpumon.Marker.phase`.

        Returns:
            The phase, for a ``with`` statement or as a decorator.

        Raises:
            MonitorError: the name is empty or not a string.
        """
        if self._process is not None and time.monotonic() > self._heard + LISTEN_SECONDS:
            self._listen()
        return self.marker.phase(name, **attributes)

    def start(self) -> None:
        """Start the sampling process, and wait until it is ready (about a third of a second).

        If the process cannot start, there is a warning and nothing is recorded.

        Raises:
            MonitorError: the trace cannot be written, another monitor writes it, or a GPU of
                ``gpu_ids`` does not exist.
        """
        if self.running:
            return
        self._lock = create_files(self)
        self._owner = os.getpid()
        config = {
            "path": str(self.path),
            "interval": self.interval,
            "gpu_ids": self.gpu_ids,
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "order": os.environ.get("CUDA_DEVICE_ORDER"),
            "parent": os.getpid(),
            "process_root": self.process_root or os.getpid(),
            "program_root": self.program_root,
            "rank": self.rank,
            "version": VERSION,
        }
        # Not a pipe, which a talkative library could fill until the sampler blocks.
        said = self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the sampler)
        self._place, self._last = 0, ""
        try:
            self._process = launch.start("gpumon.sampler", config, said, said)
        except OSError as error:
            self._close()
            warn(f"gpumon cannot start its sampler: {error}")
            return
        try:
            self._wait_until_ready()
            if self.live and self.running:
                self._show()
        except MonitorError:
            self._process.wait()
            self._close()
            for file in (samples_file(self.path), self.marker.path):
                file.unlink(missing_ok=True)
            raise
        except BaseException:
            # An interrupt, or a warning where the program has warnings be errors.
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the sampling process and close the trace.

        A second call, or a call in a forked child process, does nothing.
        """
        process = self._process
        if process is None or os.getpid() != self._owner:
            return
        try:
            if process.poll() is not None:
                warn(
                    f"gpumon's sampler ended early (status {process.returncode}); "
                    "the trace is kept up to there"
                )
            with contextlib.suppress(OSError):
                assert process.stdin is not None
                process.stdin.write(b"stop\n")
                process.stdin.flush()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                warn("gpumon's sampler did not stop in time and was ended; its trace is kept")
        finally:
            # Also when a second interrupt arrives while waiting: leave no process behind.
            if process.poll() is None:
                process.kill()
                process.wait()
            try:
                self._listen()
            finally:
                # Also where the program has warnings be errors.
                self._close()

    def read(self) -> Trace:
        """Read the trace as recorded so far; see :func:`gpumon.read`."""
        with required_for("Monitor.read()"):
            from gpumon.trace import read

        return read(self.path)

    def plot(self, **options: Any) -> Figure:
        """Draw the chart; see :meth:`gpumon.Trace.plot`."""
        return self.read().plot(**options)

    def _close(self) -> None:
        """Close what is open; the sampler has ended."""
        process, self._process = self._process, None
        for stream in (process and process.stdin, self._said):
            with contextlib.suppress(OSError):
                if stream:
                    stream.close()
        self.marker.close()
        if self._lock is not None:
            self._lock.release()
        self._lock = None
        view, self._view = self._view, None
        if view is not None:
            view.stop()

    def _show(self) -> None:
        try:
            with required_for("a live chart"):
                from gpumon.live_chart import LiveView, in_notebook

            if not in_notebook():
                return
            self._view = LiveView(self.path, LIVE_SECONDS)
        except MonitorError as error:
            warn(f"recording continues without the chart: {error}")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline and self.running:
            if self._listen():
                return
            time.sleep(0.01)
        if self.running:
            warn(f"gpumon's sampler is not ready after {READY_SECONDS:.0f} s; continuing without")
            return
        self._listen()
        assert self._process is not None
        why = self._last or f"exit status {self._process.returncode}"
        self._close()
        warn(f"gpumon's sampler could not start, so nothing is recorded: {why}")

    def _listen(self) -> bool:
        """Pass on what the sampler has said since, as warnings; True once it says it is ready."""
        self._heard = time.monotonic()
        assert self._said is not None
        said, end, _ = os.pread(self._said.fileno(), 2**16, self._place).rpartition(b"\n")
        self._place += len(said + end)
        lines = said.decode("utf-8", "replace").split("\n")
        for line in lines:
            kind, _, text = line.partition(": ")
            if kind == "warning":
                warn(text)
            elif kind == "error":
                raise MonitorError(text)
            self._last = line or self._last
        return "ready" in lines


def create_files(monitor: Monitor) -> Lock:
    """Delete an older trace of this name, and reserve the name until the lock is released.

    Raises MonitorError where the files cannot be created, or another monitor writes them.
    """
    try:
        monitor.path.parent.mkdir(parents=True, exist_ok=True)
        monitor.marker.close()
        # Held from here on: a second monitor that starts meanwhile must not touch a thing.
        lock = Lock(monitor.path)
        try:
            new_file(samples_file(monitor.path)).unlink(missing_ok=True)
            os.close(create(samples_file(monitor.path)))
            phases = create(monitor.marker.path)
            os.write(phases, b'{"gpumon phases": 1}\n')
            os.close(phases)
        except BaseException:
            lock.release()
            raise
    except OSError as error:
        raise MonitorError(
            f"the trace cannot be written to {monitor.path}: {error.strerror}; "
            "choose another path for Monitor"
        ) from error
    return lock
