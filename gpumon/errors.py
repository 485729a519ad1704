"""The one error that gpumon raises for something its user can put right."""


class MonitorError(Exception):
    """What is wrong, where, and how to put it right, in one line."""
