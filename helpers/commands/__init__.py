"""The subcommands of ``rosetta``, one module for each group of related commands.

Each module has ``add(commands)``, which adds its parsers; a parser's default ``run`` does the work.
Imports that only reports or Slurm need are in the functions that use them.
"""
