"""This module gives the latest values to Prometheus, as a file or over HTTP.

``gpu0/memory used (MiB)`` is ``gpumon_memory_used_bytes{device="gpu0",...}``: base units, in the
name as Prometheus wants them. A series that is not available is left out.
"""

from __future__ import annotations

import ipaddress
import math
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gpumon.errors import MonitorError, required_for
from gpumon.live import Follower

UNITS = {
    "%": ("percent", 1.0),
    "MiB": ("bytes", 2.0**20),
    "MiB/s": ("bytes_per_second", 2.0**20),
    "W": ("watts", 1.0),
    "J": ("joules", 1.0),
    "C": ("celsius", 1.0),
    "MHz": ("hertz", 1e6),
    "bits": ("bits", 1.0),
    "count": ("", 1.0),
    "cores": ("cores", 1.0),
    "1/s": ("per_second", 1.0),
}
# What only grows: Prometheus takes its rate, and wants to see it in the name.
COUNTERS = ("J",)
TEXT = "text/plain; charset=utf-8"
SECONDS = 10.0
"""That a connection may last, however it is used: each holds a thread and a file."""
MOST = 50
"""Connections at once; a further one is closed unanswered."""
HOME = b"gpumon: the metrics are at /metrics\n"


@dataclass
class Metric:
    """One metric of all devices. name: with its unit and without ``_total``; counter: else a gauge.

    samples: labels and value.
    """

    name: str
    unit: str
    counter: bool
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    @property
    def full_name(self) -> str:
        return self.name + ("_total" if self.counter else "")


def metrics(header: dict[str, Any], values: Mapping[str, float]) -> list[Metric]:
    """The metrics of a trace's header and the latest value of each of its series."""
    devices = {device["name"]: device for device in header["devices"]}
    found: dict[str, Metric] = {}
    for key, value in values.items():
        parsed = re.fullmatch(r"([^/]+)/(.+) \((.+)\)", key)
        if parsed is None or math.isnan(value):
            continue
        device, quantity, unit = parsed.groups()
        labels = {"device": device, "host": str(header["host"])}
        core = re.fullmatch(r"cpu(\d+)", quantity)
        if core:
            quantity, labels["core"] = "cpu core", core.group(1)
        for name in ("uuid", "product", "cuda"):
            text = devices.get(device, {}).get(name)
            if text not in (None, ""):
                labels[name] = str(text)
        suffix, factor = UNITS.get(unit, (unit, 1.0))
        owner = device.rpartition(":")[2]
        owner = owner if owner in ("sampler", "process") else ""
        words = ["gpumon", owner, quantity, suffix]
        metric = re.sub(r"[^a-z0-9_]+", "_", "_".join(filter(None, words)).lower())
        one = found.setdefault(metric, Metric(metric, suffix, unit in COUNTERS))
        one.samples.append((labels, value * factor))
    return list(found.values())


def exposition(metrics: Sequence[Metric], accept: str = "") -> tuple[bytes, str]:
    """The metrics in the format that an ``Accept`` header asks for, and its content type.

    Without one it is Prometheus' text format. OpenMetrics is the other.
    """
    with required_for("Prometheus' format"):
        from prometheus_client import CollectorRegistry, exposition
        from prometheus_client.core import Metric as Family

    class Collector:
        def collect(self) -> Iterator[Family]:
            for metric in metrics:
                kind = "counter" if metric.counter else "gauge"
                unit = re.sub(r"[^a-z0-9_]+", "_", metric.unit)
                family = Family(metric.name, "Recorded by gpumon.", kind, unit)
                for labels, value in metric.samples:
                    family.add_sample(metric.full_name, labels, value)
                yield family

    registry = CollectorRegistry()
    registry.register(Collector())
    encode, kind = exposition.choose_encoder(accept)
    return encode(registry), kind


class MetricsSource:
    """A trace's latest values, read up to now at each question."""

    def __init__(self, prefix: Path) -> None:
        self._follower = Follower(prefix, history=1)
        self._lock = threading.Lock()

    def instruments(self) -> list[Metric]:
        """Every metric that there may be: those of all series, whether they have values or not."""
        keys = [series["key"] for series in self._follower.header["series"]]
        return metrics(self._follower.header, dict.fromkeys(keys, 0.0))

    def metrics(self) -> list[Metric]:
        """Every metric there is now; of a trace that has ended or is silent, only that it is so."""
        with self._lock:
            follower = self._follower
            follower.poll()
            silent = follower.ended is not None or bool(follower.seconds_silent(time.time()))
            labels = {"host": str(follower.header["host"])}
            found = [Metric("gpumon_up", "", False, [(labels, 0.0 if silent else 1.0)])]
            if silent:
                return found
            if follower.phase:
                phase = labels | {"phase": follower.phase}
                found.append(Metric("gpumon_phase", "", False, [(phase, 1.0)]))
            return found + metrics(follower.header, follower.now)


class Server(ThreadingHTTPServer):
    """Closes connections that last too long, and those that are too many."""

    def __init__(self, *arguments: Any) -> None:
        self._until: dict[Any, float] = {}
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self._until) >= MOST:
            self.shutdown_request(request)
            return
        self._until[request] = time.monotonic() + SECONDS
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._until.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Cut, twice a second, connections whose time is over, so that their threads continue."""
        now = time.monotonic()
        for request, until in list(self._until.items()):
            if now > until:
                with suppress(OSError):  # it may just have been closed
                    request.shutdown(socket.SHUT_RDWR)


def server(prefix: Path, host: str, port: int) -> ThreadingHTTPServer:
    """A server that answers once ``serve_forever()`` runs; port 0: any that is free.

    Raises MonitorError where there is no trace, or the address cannot be had.
    """
    source = MetricsSource(prefix)
    exposition(source.metrics())  # now, where a missing package is one clear error
    local = _local(host)

    class Handler(BaseHTTPRequestHandler):
        server_version = "gpumon"
        timeout = SECONDS

        def handle(self) -> None:
            with suppress(ConnectionError):  # some hang up before they have asked or heard all
                super().handle()

        def do_GET(self) -> None:
            # Guard against DNS rebinding: another site may point its own name at this address.
            if local and not _local(self.headers.get("Host", host)):
                self._answer(403, b"gpumon answers to this machine's own names alone\n")
            elif self.path.partition("?")[0] == "/metrics":
                accepted = self.headers.get("Accept", "")
                self._answer(200, *exposition(source.metrics(), accepted))
            elif self.path == "/":
                self._answer(200, HOME)
            else:
                self._answer(404, HOME)

        def _answer(self, code: int, data: bytes, kind: str = TEXT) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing: one line every few seconds would be all that it says."""

    try:
        return Server((host, port), Handler)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise MonitorError(
            f"cannot serve on {host}:{port}: {why}; choose another --host or --port"
        ) from error


def _local(name: str) -> bool:
    """Whether a host, with or without a port, means this machine by the loopback alone."""
    bare = name.rpartition(":")[0] if name.count(":") == 1 or "]:" in name else name
    bare = bare.strip("[]").lower()
    try:
        return ipaddress.ip_address(bare).is_loopback
    except ValueError:
        return bare == "localhost"
