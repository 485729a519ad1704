"""Starts a probe in a kernel's environment, limits its time, and judges it by what it wrote."""

LIMIT_SECONDS = 300.0
"""A probe takes about ten seconds; but a driver may compile a library's code first, and a cold disk
may take its time over importing a framework."""
