"""The subcommands of ``rosetta``, one module for each group of related commands.

Each module has ``add(commands)``, which adds its parsers; a parser's default ``run`` does the work.
What only reports or Slurm need is imported by the functions that use it.
"""
