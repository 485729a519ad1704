"""A chart with title and description; each framework has the same style in all charts.

Framework colours are Okabe and Ito's (https://jfly.uni-koeln.de/color/), which colour-blind
people can distinguish. A second notebook of the same framework has the same colour and marker, and
broken lines. The report maps each of these colours to its dark twin.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.frameworks import LOOKS
from helpers.results.comparability import flagged
from helpers.results.comparison import devices
from helpers.results.tables import family_of
from helpers.training.figure_style import PAGE, WIDTH, styled

COLOURS = {family: look[0] for family, look in LOOKS.items()}
OTHERS = "#56B4E9"
MARKERS = {family: look[2] for family, look in LOOKS.items()}


@dataclass(frozen=True)
class Chart:
    """A picture of a comparison, which ``draw`` draws with a given width in inches.

    alt: a description for screen readers. note: the text below it. folded: only its title is shown
    at first.
    """

    name: str
    title: str
    alt: str
    draw: Callable[[float], Figure]
    note: str = ""
    folded: bool = False

    def figure(self, width: float = WIDTH) -> Figure:
        return styled(self.draw)(width)


def described(what: str, parts: Iterable[str]) -> str:
    """A chart's description: what is shown, and each value."""
    return f"{what}: {'; '.join(parts)}."


def on_devices(row: Mapping[str, Any]) -> str:
    """``Keras on 2 devices``, with the flags that say why its times are not comparable."""
    return flagged(f"{row['label']} on {devices(row['devices'])}", row["flags"])


def note(
    axes: Axes, text: str, at: tuple[float, float], by: tuple[float, float], **style: Any
) -> None:
    """Small text next to a data point, shifted right and up by these typographic points."""
    given: dict[str, Any] = {"fontsize": 8, "va": "center", **style}
    axes.annotate(text, at, xytext=by, textcoords="offset points", **given)


def key(axes: Axes, label: str, **style: Any) -> None:
    """A line of the legend."""
    axes.plot([], [], label=label, **style)


def name_rows(axes: Axes, names: Sequence[str], *, above: float = 0.5, below: float = 0.5) -> None:
    """Name rows 0, 1, ... downwards, with room ``above`` the first and ``below`` the last."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 1 + below, -above)
    axes.tick_params(axis="y", length=0)


def colour_of(label: str) -> str:
    return COLOURS.get(family_of(label) or "", OTHERS)


def line_of(label: str, labels: Iterable[str]) -> dict[str, Any]:
    """Colour and marker by framework; broken if the framework already has another line."""
    family = dict.fromkeys(name for name in labels if colour_of(name) == colour_of(label))
    place = list(family).index(label)
    styles = ("-", "--", "-.", ":")
    return {
        "color": colour_of(label),
        "marker": MARKERS.get(family_of(label) or "", "P"),
        "ms": 6,
        "mfc": colour_of(label) if place == 0 else PAGE,
        "ls": styles[place % len(styles)],
    }
