"""Slurm: a recipe's batch script, what is checked before it is queued, and how far jobs are."""
