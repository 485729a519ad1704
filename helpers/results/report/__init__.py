"""The report: one page that opens without a network, and what people paste.

``report.html`` holds everything (charts, tables, data); ``report.md`` the tables as text, and
``csv/`` the numbers.
"""

from helpers.results.report.write import CSV, HTML, MARKDOWN, write

__all__ = ["CSV", "HTML", "MARKDOWN", "write"]
