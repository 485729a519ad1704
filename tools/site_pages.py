"""Add pages to the site that are not Markdown files in docs/ (a hook of mkdocs, see mkdocs.yml).

README.md, CONTRIBUTING.md and others lie outside docs/, executed notebooks are notebooks, and code
makes the results page and the lists of commands and of Python names. When the site is built they
become pages, and links to them are rewritten, so that a link works in the repository and on the
site.
"""

import base64
import functools
import html
import json
import posixpath
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "measurements.md",
    "tests/README.md": "tests.md",
    "tests/gpu/README.md": "gpu-tests.md",
}
"""Files outside docs/, and the names of their pages."""

RESULTS = "results/results.html"
"""The page of all records in docs/results."""

GENERATED = re.compile(r"^<!-- generated: ([\w-]+) -->$", re.M)
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]+)\)")
TARGET = re.compile(r"(\]\()([^)\s]+)(\))")  # of a link or an image
FORGE = re.compile(r"\[([^\]]+)\]\(\.\./\.\./(?:issues)?\)")  # leads somewhere on a forge only


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages; of each notebook in docs/ its page takes the notebook's place."""
    for source, page in TOP.items():
        text = _from_outside(source, (ROOT / source).read_text(encoding="utf-8"))
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, RESULTS, content=reference("results")))
    for file in list(files):
        if file.src_uri.endswith(".ipynb"):
            files.remove(file)
            pages, stem = dict(_pages(Path(file.abs_src_path))), file.src_uri.removesuffix(".ipynb")
            for suffix, content in pages.items():
                files.append(File.generated(config, stem + suffix, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Fills in what is generated, and sends links to where the site has what they name.

    A link to a file that is in the repository alone becomes plain text.
    """
    source = page.file.src_uri
    folder = posixpath.dirname(source)

    def moved(link: re.Match[str]) -> str:
        text, (target, hash_, anchor) = link[1], link[2].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        there = posixpath.normpath(posixpath.join(folder, target))
        if there.removeprefix("../") in TOP and there.startswith("../"):
            target = posixpath.relpath(TOP[there.removeprefix("../")], folder or ".")
        elif there.startswith("../"):
            return text
        target = re.sub(r"\.ipynb$", ".md", target)
        target = re.sub(r"(results/.*/report)\.md$", r"\1.html", target)  # the page itself
        target = RESULTS if there == "results" else target
        return f"[{text}]({target}{hash_}{anchor})"

    return GENERATED.sub(lambda found: reference(found[1]), LINK.sub(moved, markdown))


@functools.cache
def reference(name: str) -> str:
    """What tools/reference_pages.py prints: the list of commands, for example.

    Raises:
        PluginError: the environment lab is missing, or the list cannot be made.
    """
    python = ROOT / ".venvs" / "lab" / "bin" / "python"
    if not python.exists():
        raise PluginError('the site needs the environment lab: make envs ARGS="--environments lab"')
    done = subprocess.run(
        [str(python), str(ROOT / "tools" / "reference_pages.py"), name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PluginError(f"tools/reference_pages.py {name} failed:\n{done.stderr}")
    return done.stdout


def _from_outside(source: str, text: str) -> str:
    """The text of a file outside docs/ with links that begin in docs/."""
    folder = posixpath.dirname(source)

    def moved(link: re.Match[str]) -> str:
        target, hash_, anchor = link[2].partition("#")
        if not target or "://" in target:
            return link[0]
        target = posixpath.normpath(posixpath.join(folder, target))
        target = TOP.get(target, posixpath.relpath(target, "docs"))
        return f"{link[1]}{target}{hash_}{anchor}{link[3]}"

    return TARGET.sub(moved, FORGE.sub(r"\1", text))


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
    unsearched = "---\nsearch:\n  exclude: true\n---\n\n"  # all have the text of the notebooks
    yield ".md", unsearched + "\n\n".join(parts) + "\n"


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
