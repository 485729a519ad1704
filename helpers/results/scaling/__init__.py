"""Measure scaling to more devices: speed, images needed, the parts of a step, and cost."""
