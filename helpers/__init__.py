"""The code that all notebooks share, in packages that import only from earlier packages.

The packages are ``networks``, ``frameworks`` (the registry, and one module per framework),
``fairness``, ``training`` (for the notebooks), ``results`` (for the report) and ``runner`` (for the
command). The modules at the top are for all of them. ``tests/test_packages.py`` checks the order.
"""
