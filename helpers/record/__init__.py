"""The record of a run, one JSON file that is whole at every moment: its type, writing and reading.

A notebook starts a record, adds a section as it reaches it, and finishes it. Each addition is
checked against ``helpers.record.types`` and written to a temporary name first, so a reader never
sees half a record.
"""

from helpers.record.file import FILE, check, plain, read, write
from helpers.record.types import SCHEMA
from helpers.record.writing import Run, start

__all__ = ["FILE", "SCHEMA", "Run", "check", "plain", "read", "start", "write"]
