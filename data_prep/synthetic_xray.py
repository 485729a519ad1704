"""Render a synthetic chest X-ray, with each finding as a sign that a radiologist would recognise.

The images are not medical data. Coordinates: x to the right and y down, both from -1 to 1; shades
from 0 (black) to 1 (white).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from PIL import Image

#: The anatomy is painted at this size and enlarged; grain is added at the full size.
CANVAS = 256


@dataclass
class Anatomy:
    """The anatomy of one patient, the same in all X-rays of this patient."""

    width: float
    lung_width: float
    lung_top: float
    diaphragm: float
    heart: float
    rib_step: float
    rib_shade: float
    lung_shade: float
    tissue: float
    vessels: float


def random_anatomy(rng: np.random.Generator) -> Anatomy:
    """Draw the anatomy of a random patient."""
    return Anatomy(
        width=rng.uniform(0.80, 0.95),
        lung_width=rng.uniform(0.30, 0.35),
        lung_top=rng.uniform(-0.80, -0.70),
        diaphragm=rng.uniform(0.42, 0.52),
        heart=rng.uniform(0.92, 1.08),
        rib_step=rng.uniform(0.145, 0.170),
        rib_shade=rng.uniform(0.05, 0.09),
        lung_shade=rng.uniform(0.20, 0.26),
        tissue=rng.uniform(0.56, 0.64),
        vessels=rng.uniform(0.7, 1.2),
    )


def render_xray(
    body: Anatomy, findings: dict[str, float], rng: np.random.Generator, size: int = 1024
) -> np.ndarray:
    """Render one X-ray as uint8 (size, size); `findings` gives the strength of each finding."""
    canvas = _shades(body, findings, rng)
    return _expose(canvas, rng, size)


def _step(t: np.ndarray, width: float) -> np.ndarray:
    """Rise smoothly from 0 to 1 while t rises from -width to width."""
    t = np.clip(t * (0.5 / width) + 0.5, 0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


def _fraction(t: np.ndarray) -> np.ndarray:
    """Return t % 1.0, with the same bits and in less time."""
    return t - np.floor(t)


def _blob(x: np.ndarray, y: np.ndarray, cx: float, cy: float, rx: float, ry: float) -> np.ndarray:
    """Return a round shadow, 1 in the middle, with a soft edge."""
    r = np.sqrt(((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2)
    return _step(1.0 - r, 0.35)


@cache
def _grid() -> tuple[np.ndarray, np.ndarray]:
    line = (np.arange(CANVAS, dtype=np.float32) + 0.5) * (2.0 / CANVAS) - 1.0
    x, y = np.meshgrid(line, line)
    return x, y


@cache
def _textures() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return textures: (cloud in 0..1, vessel ridges in 0..1, fine mesh in 0..1)."""
    rng = np.random.Generator(np.random.PCG64(20171))
    kinds = []
    for _ in range(6):
        planes = []
        for cells in (8, 22, 44):
            coarse = rng.random((cells, cells), dtype=np.float32)
            wide = Image.fromarray(coarse).resize((CANVAS, CANVAS), Image.Resampling.BICUBIC)
            planes.append(np.asarray(wide))
        ridges = [np.clip(1.0 - np.abs(plane - 0.5) * 6.0, 0.0, 1.0) for plane in planes[1:]]
        kinds.append((np.clip(planes[0], 0, 1), ridges[0], ridges[1]))
    return kinds


def _texture(rng: np.random.Generator, kind: int) -> np.ndarray:
    planes = _textures()[int(rng.integers(6))]
    plane = np.roll(planes[kind], tuple(rng.integers(0, CANVAS, 2)), axis=(0, 1))
    return plane[:, ::-1] if rng.random() < 0.5 else plane


def _shades(body: Anatomy, findings: dict[str, float], rng: np.random.Generator) -> np.ndarray:
    grid_x, grid_y = _grid()
    # The patient never stands the same way twice.
    zoom, turn = rng.uniform(0.96, 1.05), rng.normal(0.0, 0.015)
    x = (grid_x + turn * grid_y) * zoom + rng.normal(0.0, 0.02)
    y = (grid_y - turn * grid_x) * zoom + rng.normal(0.0, 0.025)
    side_of = {-1: np.asarray(x < 0), 1: np.asarray(x >= 0)}
    ax = np.abs(x)

    def strength(name: str) -> float:
        return findings.get(name, 0.0)

    def some_side() -> int:
        return -1 if rng.random() < 0.5 else 1

    # Breath: emphysema blows the lungs up, fibrosis and atelectasis shrink them.
    breath = rng.normal(0.0, 0.02)
    diaphragm = {side: body.diaphragm + breath + rng.normal(0.0, 0.01) for side in (-1, 1)}
    diaphragm[-1] -= 0.04  # the liver lifts the right half, which is on the left of the image
    lung_width = body.lung_width
    shift = 0.0
    if power := strength("Emphysema"):
        lung_width *= 1.0 + 0.10 * power
        for side in (-1, 1):
            diaphragm[side] += 0.14 * power
    if power := strength("Fibrosis"):
        for side in (-1, 1):
            diaphragm[side] -= 0.07 * power
    collapsed = some_side()
    if power := strength("Atelectasis"):
        diaphragm[collapsed] -= 0.16 * power
        shift = 0.05 * power * collapsed

    # Trunk, neck and shoulders before a black background.
    reach = 0.20 + (body.width - 0.20) * _step(y + 0.78, 0.22)
    trunk = _step(reach - ax, 0.05)
    shade = 0.03 + trunk * (
        body.tissue + 0.10 * np.clip(y + 0.2, 0, 1) - 0.05 * _step(ax - 0.6, 0.2)
    )

    # Lungs.
    lungs = np.zeros_like(x)
    wall = np.full_like(x, -1.0)
    for side in (-1, 1):
        middle = side * 0.44
        taper = 1.0 - 0.45 * np.clip(-y - 0.15, 0.0, 1.0)
        across = (x - middle) * side / (lung_width * taper)
        # 1 at the apex's height and below; the upper end is round.
        up = np.clip((y - 0.05) / (body.lung_top - 0.05), 0.0, None)
        inside = 1.0 - np.sqrt(np.abs(across) ** 2.5 + up**3.0)
        floor = diaphragm[side] + 0.9 * (x - middle + side * 0.08) ** 2 - y
        lung = _step(inside, 0.10) * _step(floor, 0.025)
        lungs = np.where(side_of[side], lung, lungs)
        wall = np.where(side_of[side], inside * lung_width, wall)
    lung_shade = body.lung_shade + rng.normal(0.0, 0.015)
    air = trunk * lungs

    # Vessels fan out from the hila; ribs lie over everything.
    hila = np.exp(-(((ax - 0.20) / 0.22) ** 2) - ((y - 0.02) / 0.38) ** 2)
    branches = _texture(rng, 1) * _texture(rng, 0) + 0.5 * _texture(rng, 2) * _texture(rng, 0)
    vessels = (branches * (0.06 + 0.24 * hila) + 0.10 * hila**2) * body.vessels
    content = lung_shade + vessels + 0.05 * _texture(rng, 0) + 0.10 * _step(0.10 - wall, 0.12)
    content = _add_lung_findings(content, x, y, wall, diaphragm, findings, rng, collapsed)
    shade = shade * (1.0 - air) + content * air

    phase = y + 0.95 - 0.34 * np.clip(ax - 0.10, 0, None) + 0.55 * np.clip(ax - 0.4, 0, None) ** 2
    rib = _fraction(phase / body.rib_step)
    band = _step(0.19 - np.abs(rib - 0.5), 0.06)
    edge = np.clip(1.0 - np.abs(np.abs(rib - 0.5) - 0.18) * 14.0, 0.0, 1.0)
    cage = trunk * _step(0.80 - ax, 0.06) * _step(y + 0.78, 0.08) * _step(0.75 - y, 0.2)
    shade += body.rib_shade * cage * (0.7 * band + 0.5 * edge) * (0.35 + 0.65 * lungs)
    front = _fraction((y + 0.55 * ax + 0.4) / (body.rib_step * 1.15))
    shade += 0.025 * cage * _step(0.2 - np.abs(front - 0.5), 0.08) * _step(ax - 0.3, 0.15)
    collar = -0.60 - 0.20 * (ax - 0.08) + 0.10 * np.sin(ax * 6.0)
    shade += 0.09 * _step(0.028 - np.abs(y - collar), 0.02) * _step(0.72 - ax, 0.05) * trunk

    # Mediastinum: spine, aortic knob, heart.
    xs = x - shift
    waist = (
        0.105 + 0.05 * _step(y + 0.02, 0.3) + 0.05 * _blob(x, y, 0.08, -0.25, 0.16, 0.16) * (x > 0)
    )
    middle_shade = 0.70 + 0.12 * _step(y, 0.6)
    core = _step(waist - np.abs(xs), 0.045) * trunk
    heart_size = body.heart * (1.0 + rng.normal(0.0, 0.02))
    heart_size *= 1.0 + 0.42 * strength("Cardiomegaly") - 0.16 * strength("Emphysema")
    r = np.sqrt(
        ((xs - 0.09 - 0.04 * heart_size) / (0.31 * heart_size)) ** 2
        + ((y - 0.28 - 0.25 * (xs - 0.1)) / (0.31 * heart_size**0.7)) ** 2
    )
    heart = _step(1.0 - r, 0.14)
    centre = np.maximum(core, heart * 0.95)
    depth = middle_shade - 0.05 * np.clip(np.abs(xs - 0.05), 0.0, 0.6)
    shade = shade * (1.0 - centre) + np.maximum(shade, depth) * centre
    vertebra = _fraction(y / 0.115)
    shade += 0.03 * _step(0.075 - ax, 0.02) * (_step(np.abs(vertebra - 0.5) - 0.38, 0.08) - 0.5)
    shade -= 0.10 * _step(0.035 - np.abs(xs), 0.02) * _step(-0.28 - y, 0.1) * trunk  # windpipe

    if power := strength("Hernia"):
        # A piece of stomach behind the heart: a round shadow with air above its fluid.
        cx, cy = rng.uniform(-0.03, 0.10), rng.uniform(0.22, 0.32)
        sac = _blob(x, y, cx, cy, 0.20, 0.18)
        shade += power * sac * np.where(y < cy, -0.28, 0.10)

    # Below the diaphragm.
    belly = trunk * _step(y - 0.62, 0.18) * (1.0 - lungs)
    shade += 0.12 * belly + 0.04 * belly * _texture(rng, 0)
    # The letter on the film's edge.
    letter_x = 0.86 * some_side()
    mark = (np.abs(grid_x - letter_x) < 0.012) | (
        (np.abs(grid_y + 0.80) < 0.012) & (np.abs(grid_x - letter_x - 0.025) < 0.035)
    )
    shade = np.where(mark & (np.abs(grid_y + 0.85) < 0.06), 0.92, shade)
    return shade


def _add_lung_findings(
    content: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    wall: np.ndarray,
    diaphragm: dict[int, float],
    findings: dict[str, float],
    rng: np.random.Generator,
    collapsed: int,
) -> np.ndarray:
    """Add the findings within the lungs; `wall` is the distance to the rib cage."""
    ax = np.abs(x)

    def sides(both: float) -> list[int]:
        one = -1 if rng.random() < 0.5 else 1
        return [-1, 1] if rng.random() < both else [one]

    def on(side: int) -> np.ndarray:
        return np.asarray(x * side > 0)

    if power := findings.get("Emphysema"):
        content = content - 0.09 * power - 0.5 * power * (content - content.mean())
    if power := findings.get("Infiltration"):
        cloud = _step(_texture(rng, 0) - 0.42, 0.2)
        for side in sides(0.6):
            zone = _step(0.55 - np.abs(y - rng.uniform(-0.1, 0.3)), 0.3)
            content = content + 0.17 * power * on(side) * zone * (0.45 + 0.8 * cloud)
    if power := findings.get("Edema"):
        wings = np.exp(-(((ax - 0.27) / 0.26) ** 2) - ((y - 0.08) / 0.36) ** 2)
        content = content + 0.36 * power * wings + 0.05 * power * _texture(rng, 2)
    if power := findings.get("Pneumonia"):
        for side in sides(0.2):
            patch = _blob(x, y, side * rng.uniform(0.36, 0.5), rng.uniform(0.05, 0.35), 0.30, 0.27)
            content = content + 0.26 * power * patch * (0.5 + 0.8 * _texture(rng, 0))
    if power := findings.get("Consolidation"):
        for side in sides(0.25):
            cy = rng.uniform(-0.4, 0.3)
            patch = _blob(x, y, side * rng.uniform(0.36, 0.52), cy, 0.30, rng.uniform(0.24, 0.34))
            content = content + 0.32 * power * patch
    if power := findings.get("Fibrosis"):
        mesh = _texture(rng, 2) * _step(y + 0.1, 0.4) + 0.3 * _step(y - 0.1, 0.3)
        content = content + 0.20 * power * mesh
    if power := findings.get("Atelectasis"):
        # Plates: one to three flat bands above the raised diaphragm, and less air around them.
        for _ in range(int(rng.integers(1, 4))):
            at = diaphragm[collapsed] - rng.uniform(0.10, 0.40)
            tilt = rng.normal(0.0, 0.25)
            plate = _step(0.035 - np.abs(y - at - tilt * (ax - 0.45)), 0.03)
            content = content + 0.20 * power * plate * on(collapsed) * _step(0.72 - ax, 0.1)
        content = content + 0.12 * power * on(collapsed) * _step(y - 0.0, 0.3)
    for name, count, low, high, shade in (
        ("Mass", 1, 0.13, 0.20, 0.36),
        ("Nodule", 2, 0.045, 0.075, 0.34),
    ):
        if power := findings.get(name):
            for _ in range(int(rng.integers(1, count + 1))):
                side = -1 if rng.random() < 0.5 else 1
                radius = rng.uniform(low, high)
                cx, cy = side * rng.uniform(0.32, 0.58), rng.uniform(-0.45, 0.35)
                content = content + shade * power * _blob(x, y, cx, cy, radius, radius)
    if power := findings.get("Pleural_Thickening"):
        for side in sides(0.4):
            rim = _step(0.05 + 0.02 * power - wall, 0.03) * (ax > 0.44)
            content = content + 0.24 * power * rim * on(side) * _step(
                y + rng.uniform(0.2, 0.7), 0.2
            )
    if power := findings.get("Pneumothorax"):
        for side in sides(0.05):
            depth = (0.10 + 0.10 * rng.random()) * power
            gap = on(side) * _step(depth - wall + 0.10 * np.clip(-y - 0.2, 0, 1), 0.015)
            gap = gap * _step(ax - 0.40 + 0.5 * np.clip(-y - 0.35, 0.0, 0.6), 0.05)
            line = (
                np.clip(1.0 - np.abs(wall - depth) * 40.0, 0, 1) * on(side) * _step(ax - 0.44, 0.05)
            )
            content = content * (1 - gap) + 0.05 * gap + 0.10 * line
    if power := findings.get("Effusion"):
        for side in sides(0.25):
            height = (0.12 + 0.32 * rng.random()) * power
            level = diaphragm[side] + 0.10 - height - 0.8 * np.clip(ax - 0.42, -0.1, None) ** 2
            fluid = on(side) * _step(y - level, 0.06)
            content = content * (1.0 - fluid) + 0.74 * fluid
    return content


def _expose(shade: np.ndarray, rng: np.random.Generator, size: int) -> np.ndarray:
    """Apply exposure, enlarge to the full size and add grain: uint8 (size, size)."""
    contrast, black = rng.uniform(0.92, 1.06), rng.normal(0.0, 0.015)
    levels = 4.0 + 225.0 * (shade * contrast + black)
    small = Image.fromarray(np.clip(levels, 2, 253).astype(np.uint8))
    plane = np.asarray(small.resize((size, size), Image.Resampling.BILINEAR))
    # Two random bits minus two others: grain from -2 to 2 with a deviation of 1, for the price of
    # one random byte a pixel. Levels 2 to 253 leave room for it.
    bits = np.frombuffer(rng.bytes(size * size), dtype=np.uint8).reshape(size, size)
    plane = plane + (bits & 1) + ((bits >> 1) & 1)
    return plane - ((bits >> 2) & 1) - ((bits >> 3) & 1)
