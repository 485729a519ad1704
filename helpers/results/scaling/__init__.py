"""Measure scaling to more devices: speed, images needed, the parts of a step, and cost."""

from helpers.results.scaling import cost, over_nodes, speed, speedup_factors, step_parts

__all__ = ["cost", "over_nodes", "speed", "speedup_factors", "step_parts"]
