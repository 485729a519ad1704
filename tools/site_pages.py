"""Add pages to the site that are not Markdown files in docs/ (a hook of mkdocs, see mkdocs.yml).

README.md, CONTRIBUTING.md and CHANGELOG.md belong at the top of the repository, and an executed
notebook is a notebook; a reader of the site shall have them too, and links to them shall work in
both places. So they become pages when the site is built, and links are rewritten to fit.
"""

import base64
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
FORGE = re.compile(r"\[([^\]]+)\]\(\.\./\.\./(?:issues)?\)")  # leads somewhere on a forge only


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages; of each notebook in docs/ its page takes the notebook's place."""
    for source, page in TOP.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_from_the_top(text)))
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
            pages, stem = dict(_pages(Path(file.abs_src_path))), file.src_uri.removesuffix(".ipynb")
            for suffix, content in pages.items():
                files.append(File.generated(config, stem + suffix, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Sends links to where the site has what the repository has."""
    depth = page.file.src_uri.count("/")

    def moved(link: re.Match[str]) -> str:
        target = link[2]
        for source, there in TOP.items():
            if target == "../" * (depth + 1) + source:
                target = "../" * depth + there
        if "://" not in target:
            target = re.sub(r"\.ipynb$", ".md", target)
            target = re.sub(r"(results/.*/report)\.md$", r"\1.html", target)  # the page itself
        return f"{link[1]}{target}{link[3]}"

    return LINK.sub(moved, markdown)


def _from_the_top(text: str) -> str:
    """A page of the repository's top as one of docs/: its links begin there."""

    def moved(link: re.Match[str]) -> str:
        target = TOP.get(link[2], link[2].removeprefix("docs/"))
        return f"{link[1]}{target}{link[3]}"

    return LINK.sub(moved, FORGE.sub(r"\1", text))


def _pages(notebook: Path) -> Iterator[tuple[str, str | bytes]]:
    """A notebook as Markdown (".md") and its pictures ("-1.png" and so on)."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts, pictures = [], 0
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            parts.append(source)
            continue
        parts.append(_folded(source))
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                pictures += 1
                yield f"-{pictures}.png", base64.b64decode("".join(data["image/png"]))
                parts.append(f"![A chart of this notebook]({notebook.stem}-{pictures}.png)")
            elif "<table" in (table := "".join(data.get("text/html", ""))):
                parts.append(_table(table))
            elif text := "".join(output.get("text", "") or data.get("text/plain", "")):
                parts.append(f"```text\n{text.rstrip()}\n```")
    yield ".md", "\n\n".join(parts) + "\n"


def _folded(source: str) -> str:
    """Code behind its first line, so that the page reads as a text with charts."""
    first = next((line for line in source.splitlines() if line.strip()), "")
    title = f"<summary>Code: <code>{html.escape(first)}</code></summary>"
    return f'<details markdown="1">{title}\n\n```python\n{source}\n```\n\n</details>'


def _table(text: str) -> str:
    """pandas' table without its styles, which belong to notebooks."""
    text = re.sub(r"<style.*?</style>|</?div[^>]*>", "", text, flags=re.DOTALL)
    text = re.sub(r"<table[^>]*>", "<table>", text)  # the site's own look
    return re.sub(r"\n\s*", "", text[text.index("<table") : text.index("</table>") + 8])
