"""Write the report's unrounded tables as one JSON text."""

import json
from typing import Any

from helpers import record
from helpers.results import conclusions
from helpers.results.comparison import Comparison
from helpers.results.report import csv_files
from helpers.results.report.contents import title

VERSION = 2


def as_json(compared: Comparison) -> str:
    """``report`` (the form's version), title, headline, answers, experiments, unreadable, tables.

    ``tables`` holds the rows of each CSV file (``csv_files.frames``), by its name; a value that is
    missing is null.
    """
    tables = {
        name: [record.plain(row) for row in frame.to_dict("records")]
        for name, frame in csv_files.frames(compared).items()
        if not frame.empty
    }
    found: dict[str, Any] = {
        "report": VERSION,
        "title": title(compared),
        "headline": conclusions.headline(compared),
        "answers": [
            {"question": answer.question, "verdict": answer.verdict, "text": answer.text}
            for answer in conclusions.answers(compared)
        ],
        "experiments": [folder.resolve().name for folder in compared.folders],
        "unreadable": [*compared.unreadable, *compared.set_aside],
        "tables": tables,
    }
    return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
