"""The charts' colours: phases that cannot be taken for one another."""

import itertools
import re

import numpy as np
import pytest

from gpumon.drawing.style import THEMES, Theme, phase_colours
from helpers import paths

LEAST = 10.0
"""CIELAB; 2.3 is what one just notices side by side, and bands lie apart and behind a curve."""


def lab(colour: str) -> np.ndarray:
    """CIELAB of a colour under D65."""
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = np.array(to_xyz) @ linear / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


OF_NOTEBOOKS = ("train", "validate", "test", "files", "synthetic")


def phases() -> list[str]:
    """Every phase that a run marks, by itself or in rounds."""
    files = (paths.ROOT / "helpers").rglob("*.py")
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    marked = re.findall(r'phase\("([^"]+)', text)
    return sorted({*marked, *OF_NOTEBOOKS, "without all-reduce", "loader alone"})


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_no_two_phases_of_a_notebook_share_a_tint(theme: Theme) -> None:
    names = phases()
    assert {"train", "validate", "test", "warm-up"} < set(names) and len(names) <= len(theme.phases)
    colours = phase_colours(names, theme)
    for one, other in itertools.combinations(names, 2):
        apart = float(np.linalg.norm(lab(colours[one]) - lab(colours[other])))
        assert apart >= LEAST, (one, other, colours[one], colours[other])
