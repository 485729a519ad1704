"""What the interactive chart draws: its own script, run by Node on a canvas that takes notes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import Any

import pytest

from gpumon.drawing import interactive

WIDTH, LEFT, RIGHT = 900, 96, 104

STUB = """
const words = [], boxes = [], data = JSON.parse(require("fs").readFileSync(0, "utf8"));
let at = null, path = [];
const put = colour => boxes.push(...path.map(([a, b]) => [colour, a, b]));
const known = {
  fillText: (text, x, y) => words.push([String(text), x, y]),
  measureText: text => ({ width: 6 * text.length }),
  moveTo: (x, y) => { at = [x, y]; },
  lineTo: (x, y) => { path.push([at[0], x]); at = [x, y]; },
  rect: (x, y, w) => path.push([x, x + w]),
  beginPath: () => { path = []; },
  stroke: () => put(g.strokeStyle),
  fill: () => put(g.fillStyle),
};
const g = new Proxy(known, { get: (target, name) => name in target ? target[name] : () => {} });
const nothing = () => {};
const canvas = { style: {}, getContext: () => g, addEventListener: nothing };
const root = {
  querySelector: what => what === "canvas" ? canvas : { style: {} }, querySelectorAll: () => [],
  style: { setProperty: nothing }, clientWidth: WIDTH,
};
globalThis.matchMedia = () => ({ matches: false, addEventListener: nothing });
globalThis.addEventListener = nothing;
globalThis.ResizeObserver = class { observe() {} };
globalThis.devicePixelRatio = 1;
gpumonChart(root, data);
console.log(JSON.stringify({ words, boxes }));
"""


def data_of(fragment: str) -> dict[str, Any]:
    """The data that a chart's HTML carries."""
    found = re.search(r'<script type="application/json">(.*?)</script>', fragment)
    assert found is not None
    return dict(json.loads(found[1]))


def drawn(fragment: str) -> dict[str, Any]:
    """``words``: (text, x, y); ``boxes``: (colour, from x, to x), a step of a line or area."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here, so the chart's script cannot be run")
    done = subprocess.run(
        [node, "-e", interactive.code() + STUB.replace("WIDTH", str(WIDTH))],
        input=json.dumps(data_of(fragment)),
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def moment(x: float, data: dict[str, Any]) -> float:
    """The second that stands at a place of the time axis."""
    start, end = data.get("view") or (data["start"], data["end"])
    left = data.get("left", LEFT)
    return float(start + (x - left) / (WIDTH - left - RIGHT) * (end - start))
