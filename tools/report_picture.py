"""Draw docs/images/report.png, the first screen of the published demo's report.

    .venvs/lab/bin/python tools/report_picture.py

Needs Chromium. Run it after the report's words or figures have changed.
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


if __name__ == "__main__":
    main()
