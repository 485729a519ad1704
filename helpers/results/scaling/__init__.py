"""What more devices bring, and what they do not: speed, images needed, steps taken apart, cost."""

from helpers.results.scaling import cost, speed, split, step_parts

__all__ = ["cost", "speed", "split", "step_parts"]
