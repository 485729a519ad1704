"""Write, check and queue a recipe's batch script for Slurm, and show the state of its jobs."""
