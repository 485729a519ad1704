"""The subcommands of ``rosetta``, in groups of those that are about the same thing.

Each module has ``add(commands)``, which adds its parsers; a parser's default ``run`` does the work.
What takes long to import is imported by ``run``.
"""
