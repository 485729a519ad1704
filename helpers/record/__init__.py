"""The record of a run, one JSON file that is whole at every moment."""

from helpers.record.file import FILE, check, plain, read, write
from helpers.record.types import SCHEMA
from helpers.record.writing import Run, start

__all__ = ["FILE", "SCHEMA", "Run", "check", "plain", "read", "start", "write"]
