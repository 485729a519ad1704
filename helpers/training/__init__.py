"""The functions that a notebook calls: setup, data, timing, metrics, checkpoint and record."""
