"""Convert a matplotlib figure to inline SVG without a fixed size, in the page's colours.

The SVG is parsed, and only drawing elements are kept. Its colours become CSS variables (``--ink``,
``--PyTorch``, ...), so that the same chart suits light and dark pages.
"""

import io
import re
from xml.etree import ElementTree

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from gpumon.drawing.style import THEMES
from helpers.frameworks import LOOKS
from helpers.results.charts.style import COLOURS, OTHERS

DARK = {family: look[1] for family, look in LOOKS.items()}
DARK_OTHERS = "#A8DBF7"

SVG = "http://www.w3.org/2000/svg"
XLINK = "{http://www.w3.org/1999/xlink}href"
_KEPT = {"svg", "g", "path", "text", "tspan", "defs", "use", "clipPath", "rect", "pattern"}
_LIGHT = THEMES["light"]
_VARIABLES = {
    _LIGHT.text: "--ink",
    _LIGHT.faint: "--faint",
    _LIGHT.grid: "--grid",
    _LIGHT.background: "--page",
    "#000000": "--ink",
    OTHERS: "--others",
} | {colour: f"--{name}" for name, colour in COLOURS.items()}
_BY_HEX = {colour.lower(): name for colour, name in _VARIABLES.items()}
_FAMILY = re.compile(r"font-family: [^;]*;? ?")
_LONG = re.compile(r"(\.\d\d)\d+")
_HEX = re.compile(r"#[0-9a-fA-F]{6}\b")


def colours() -> str:
    """The CSS variables and their values: ``:root { --page: #FFFFFF; ...}``, light and dark."""
    said = {}
    for name, theme in THEMES.items():
        families, others = (COLOURS, OTHERS) if name == "light" else (DARK, DARK_OTHERS)
        values = {
            "page": theme.background,
            "lane": theme.lane,
            "ink": theme.text,
            "faint": theme.faint,
            "grid": theme.grid,
            "accent": theme.busy,
            "others": others,
        } | families
        said[name] = " ".join(f"--{what}: {colour};" for what, colour in values.items())
    in_dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {said['dark']} }} }}"
    return f":root {{ {said['light']} }}\n{in_dark}\n"


def inline(figure: Figure, name: str) -> Markup:
    """``figure`` as an ``<svg>`` to put into a page; ``name`` keeps its ids apart from others'."""
    buffer = io.BytesIO()
    figure.set_facecolor("none")
    # Laid out and drawn once each; savefig does both twice, which is most of a report's time.
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)
        figure.set_layout_engine("none")
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
    root = ElementTree.fromstring(buffer.getvalue())
    _clean(root)
    for attribute in ("width", "height"):
        root.attrib.pop(attribute, None)
    root.set("aria-hidden", "true")
    root.set("focusable", "false")
    ElementTree.register_namespace("", SVG)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _clean(element: ElementTree.Element) -> None:
    for child in list(element):
        if not isinstance(child.tag, str) or child.tag.removeprefix(f"{{{SVG}}}") not in _KEPT:
            element.remove(child)
        else:
            _clean(child)
    if element.tag in (f"{{{SVG}}}g", f"{{{SVG}}}svg"):
        element.attrib.pop("id", None)
    target = element.attrib.pop(XLINK, None)
    if target is not None and target.startswith("#"):
        element.set("href", target)
    style = element.get("style")
    if style is not None:
        element.set("style", _FAMILY.sub("", _HEX.sub(_variable, style)))
    if "d" in element.attrib:
        element.set("d", _LONG.sub(r"\1", element.attrib["d"]))
    for attribute in ("fill", "stroke"):  # a pattern's paint stands in attributes
        if _HEX.fullmatch(element.get(attribute, "")):
            paint = f"{attribute}: {_HEX.sub(_variable, element.attrib.pop(attribute))}"
            element.set("style", "; ".join(filter(None, [element.get("style"), paint])))


def _variable(found: re.Match[str]) -> str:
    name = _BY_HEX.get(found[0].lower())
    return f"var({name})" if name else found[0]
