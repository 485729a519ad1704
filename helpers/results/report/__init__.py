"""Write the report: one page that opens without a network, and its figures as files.

``report.html`` holds everything (charts, tables, data); ``report.md`` the tables as text, and
``csv/`` the numbers; ``report.parquet`` has them in one tidy table, ``as_json`` for machines.
"""

from helpers.results.report.as_json import as_json
from helpers.results.report.write import CSV, HTML, MARKDOWN, PARQUET, load, write

__all__ = ["CSV", "HTML", "MARKDOWN", "PARQUET", "as_json", "load", "write"]
