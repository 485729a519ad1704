"""What more devices bring, and what they do not: speed, images needed, steps taken apart, cost."""

from helpers.results.scaling import cost, over_nodes, speed, speedup_factors, step_parts

__all__ = ["cost", "over_nodes", "speed", "speedup_factors", "step_parts"]
