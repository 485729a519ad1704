"""This package draws traces; it is the only part of gpumon that needs NumPy and matplotlib."""
