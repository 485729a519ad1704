"""Write the report: one page that opens without a network, and its numbers as files.

``report.html`` holds everything (charts, tables, data); ``report.md`` the tables as text, and
``csv/`` the numbers, as ``as_json`` does for machines.
"""

from collections.abc import Iterable
from pathlib import Path

from helpers import paths
from helpers.errors import UserError
from helpers.results import comparison, conclusions
from helpers.results.report import data_files, markdown, page, sections
from helpers.results.report.data_files import as_json

__all__ = ["CSV", "HTML", "MARKDOWN", "as_json", "load", "write"]
HTML, MARKDOWN, CSV = "report.html", "report.md", "csv"


def write(
    experiments: str | Path | Iterable[str | Path] = "latest", folder: Path | None = None
) -> Path:
    """The report of ``experiments`` (as ``comparison.load`` takes them); returns the page's path.

    It goes into ``folder``, by default that of the first experiment; an older report is replaced.

    Raises:
        UserError: there is no record to report on.
    """
    return save(load(experiments), folder)


def save(compared: comparison.Comparison, folder: Path | None = None) -> Path:
    """:func:`write`, for what :func:`load` returned."""
    folder = compared.folders[0] if folder is None else folder
    (folder / CSV).mkdir(parents=True, exist_ok=True)
    found = sections.sections(compared)
    frames = data_files.frames(compared)
    files = {name: data_files.csv(frame) for name, frame in frames.items() if not frame.empty}
    for name in frames:
        if name in files:
            paths.write_atomically(folder / CSV / f"{name}.csv", files[name])
        else:  # of an older report
            (folder / CSV / f"{name}.csv").unlink(missing_ok=True)
    paths.write_atomically(folder / MARKDOWN, markdown.render(compared, found))
    title, headline = sections.title(compared), conclusions.headline(compared)
    text = page.render(title, headline, found, files, folder, page.about_runs(compared))
    paths.write_atomically(folder / HTML, text)
    return folder / HTML


def load(experiments: str | Path | Iterable[str | Path]) -> comparison.Comparison:
    """Load what a report is made of.

    Raises:
        UserError: there is no record to report on.
    """
    compared = comparison.load(experiments)
    missing = comparison.how_to_begin(compared)
    if missing is not None:
        raise UserError(missing)
    if not compared.entries:
        more = len(compared.left_out) - 1
        raise UserError(
            compared.left_out[0] + (f" (and {more} more that cannot be read)" if more else "")
        )
    return compared
