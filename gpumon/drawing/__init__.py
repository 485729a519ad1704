"""Everything that draws a trace, and all of gpumon that needs NumPy or matplotlib."""
