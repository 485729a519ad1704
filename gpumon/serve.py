"""``gpumon serve`` answers Prometheus over HTTP with the latest values."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gpumon.errors import MonitorError
from gpumon.live_reader import Follower
from gpumon.metrics import Metric, metrics, openmetrics, prometheus

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SECONDS = 10.0
"""That a connection may last, however it is used: each holds a thread and a file."""
MOST = 50
"""Connections at once; a further one is closed unanswered."""
HOME = "gpumon: the metrics are at /metrics\n"


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
                self._answer(403, "gpumon answers to this machine's own names alone\n", TEXT)
            elif self.path.partition("?")[0] == "/metrics":
                wanted = "application/openmetrics-text" in self.headers.get("Accept", "")
                write, kind = (openmetrics, OPEN) if wanted else (prometheus, TEXT)
                self._answer(200, write(source.metrics()), kind)
            elif self.path == "/":
                self._answer(200, HOME, TEXT)
            else:
                self._answer(404, HOME, TEXT)

        def _answer(self, code: int, text: str, kind: str) -> None:
            data = text.encode("utf-8", "backslashreplace")
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
