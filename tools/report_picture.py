"""Draw docs/images/report.png, the first screen of the published demo's report.

    .venvs/lab/bin/python tools/report_picture.py               the screen, and the callouts on it
    .venvs/lab/bin/python tools/report_picture.py callouts      only the callouts, on that screen

The screen needs Chromium. The callouts are the numbers in docs/images/first-report.png, which
docs/first-report.md explains. Run it after the report's words or figures have changed, and look
whether the callouts still point at what the page says of them.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

REPORT = ROOT / "docs" / "results" / "cpu-2-cores" / "demo" / "report.html"
PICTURE = ROOT / "docs" / "images" / "report.png"
WIDTH, HEIGHT = 1000, 770
ANNOTATED = ROOT / "docs" / "images" / "first-report.png"
CALLOUTS = ((905, 110), (955, 208), (850, 320), (838, 411), (108, 621), (412, 621), (778, 621))
"""The middle of each number, from 1, in pixels of the screen."""
RADIUS, COLOUR = 13, "#B3261E"


def main() -> None:
    import browser

    if reason := browser.missing():
        raise SystemExit(f"error: {reason}")
    with tempfile.TemporaryDirectory() as profile, browser.tab(Path(profile)) as page:
        page.size(WIDTH, HEIGHT)
        page.open(REPORT.as_uri())
        shot = page.call("Page.captureScreenshot")
    PICTURE.write_bytes(base64.b64decode(shot["data"]))
    print(PICTURE.relative_to(ROOT))
    annotate()


def annotate() -> None:
    """Write the screen with a numbered disc at each of ``CALLOUTS``."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    screen = Image.open(PICTURE).convert("RGB")
    draw = ImageDraw.Draw(screen)
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    font = ImageFont.truetype(str(fonts / "DejaVuSans-Bold.ttf"), 16)
    for number, (x, y) in enumerate(CALLOUTS, start=1):
        draw.ellipse((x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS), fill=COLOUR)
        draw.text((x, y), str(number), fill="white", font=font, anchor="mm")
    screen.save(ANNOTATED, optimize=True)
    print(ANNOTATED.relative_to(ROOT))


if __name__ == "__main__":
    annotate() if sys.argv[1:] == ["callouts"] else main()
