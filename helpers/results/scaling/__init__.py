"""Measure scaling to more devices: speed, images needed, energy and memory."""
