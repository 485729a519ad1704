"""The table of error messages says what the code says."""

import re

from helpers import paths

PACKAGES = ("helpers", "data_prep", "gpumon", "environments")


def test_every_message_of_the_table_is_in_the_code() -> None:
    files = [file for package in PACKAGES for file in (paths.ROOT / package).rglob("*.py")]
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    joined = re.sub(r"[\"']\s*\n\s*f?[\"']", "", code)
    there = " ".join(re.sub(r"\{[^{}]*\}", "…", joined).split())
    page = (paths.ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+?)` \| [^|]+ \|$", page, re.MULTILINE)
    assert len(rows) == len(set(rows)) >= 10
    assert [row for row in rows if row not in there] == []
