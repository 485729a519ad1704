"""A real headless browser for tests: Chromium, driven over its DevTools protocol.

Nothing is installed for it; where no browser is on the machine the tests that need it skip.
"""

import itertools
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 60.0
_QUIET = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-allow-origins=*",
)


class Page:
    """One tab. ``said`` is what its console and errors said, ``asked`` what it requested."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.said: list[str] = []
        self.asked: list[str] = []
        self._events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _send(self, method: str, **parameters: Any) -> int:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        return number

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = self._send(method, **parameters)
        while True:
            message = json.loads(self._socket.recv())
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                return dict(message["result"])
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        self._events.append(message)
        method, given = message.get("method"), message.get("params", {})
        if method == "Runtime.consoleAPICalled":
            texts = (str(part.get("value", part.get("description"))) for part in given["args"])
            self.said.append(f"{given['type']}: {' '.join(texts)}")
        elif method == "Runtime.exceptionThrown":
            details = given["exceptionDetails"]
            thrown = details.get("exception", {}).get("description", "")
            self.said.append(f"exception: {details['text']} {thrown}")
        elif method == "Log.entryAdded":
            self.said.append(f"{given['entry']['level']}: {given['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.asked.append(given["request"]["url"])
        elif method == "Page.javascriptDialogOpening":
            self.said.append(f"dialog: {given['message']}")
            self._send("Page.handleJavaScriptDialog", accept=True)

    def open(self, address: str) -> None:
        """Load ``address`` and wait until it has loaded and drawn."""
        self._events.clear()
        self.said.clear()
        self.asked.clear()
        self.call("Page.navigate", url=address)
        deadline = time.monotonic() + SECONDS
        while not any(e.get("method") == "Page.loadEventFired" for e in self._events):
            assert time.monotonic() < deadline, f"{address} did not load"
            self._note(json.loads(self._socket.recv()))
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")

    def run(self, code: str) -> Any:
        """The value of ``code`` (awaited), as JSON has it."""
        found = self.call(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def size(self, width: int, height: int) -> None:
        given = {"width": width, "height": height, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", deviceScaleFactor=1, **given)

    def press(self, key: str, code: int = 0) -> None:
        text = key if len(key) == 1 else ""
        common = {"key": key, "windowsVirtualKeyCode": code or (ord(text) if text else 0)}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)


@contextmanager
def tab(folder: Path) -> Iterator[Page]:
    """A fresh browser whose profile lives in ``folder``; skips the test where there is none."""
    websocket = pytest.importorskip("websocket")
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser on this machine ({', '.join(NAMES)})")
    folder.mkdir(parents=True, exist_ok=True)
    port = folder / "DevToolsActivePort"
    port.unlink(missing_ok=True)
    with (folder / "browser.log").open("w") as log:
        words = [program, *_QUIET, "--remote-debugging-port=0", f"--user-data-dir={folder}"]
        env = {**os.environ, "HOME": str(folder)}
        process = subprocess.Popen([*words, "about:blank"], stdout=log, stderr=log, env=env)
    try:
        deadline = time.monotonic() + SECONDS
        while not (port.exists() and port.read_text().strip()):
            assert process.poll() is None, "the browser ended: see browser.log"
            assert time.monotonic() < deadline, "the browser did not start"
            time.sleep(0.05)
        number = port.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{number}/json/list", timeout=30) as answer:
            pages = json.load(answer)
        address = next(p["webSocketDebuggerUrl"] for p in pages if p["type"] == "page")
        socket = websocket.create_connection(address, timeout=SECONDS)
        try:
            yield Page(socket)
        finally:
            socket.close()
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
